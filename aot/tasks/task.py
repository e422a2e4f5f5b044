"""Request, Outcome and Executor: what is asked for, what became of it, and who runs it.

A request names a function and plain values, so it can run anywhere: in this process (`Here`), in
worker processes (`workers.py`), on a Ray cluster (`cluster.py`), or as a file for any other
scheduler (`files.py`). Nobody who asks knows which of them it is.
"""

from __future__ import annotations

import importlib
import os
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aotc.runtime import drivers
from aotc.runtime.bundle.canonical import Limits, decode, encode
from aotc.runtime.errors import AotcError

# A task holds machine code of up to some hundred candidates; lengths beyond are refused unread.
LIMITS = Limits(file_bytes=1 << 30, values=1 << 20, depth=32, text_bytes=1 << 24)


@dataclass(frozen=True, slots=True)
class Request:
    """A function to run elsewhere."""

    name: str  # of the kernel, for errors and progress
    function: str  # `package.module:function`, importable without torch
    arguments: tuple[Any, ...]  # plain values: numbers, strings, bytes, tuples, lists, dicts
    timeout_seconds: float | None = None  # None: the executor's


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request: a value or an error."""

    request: Request
    value: Any  # plain values, as the function returned them
    error: AotcError | None
    seconds: float

    def unwrap(self) -> Any:
        """The value; raises the error."""
        if self.error is not None:
            raise self.error
        return self.value


class Batch:
    """Requests in flight; a context manager that ends those whose results nobody took."""

    def submit(self, request: Request) -> int:
        """Have it run when there is room; returns its number, counted from 0."""
        raise NotImplementedError

    def results(self) -> Iterator[tuple[int, Outcome]]:
        """Number and outcome of each request as it ends, until none is left.

        More may be submitted between two results. Raises TaskError where the executor itself
        fails, and `concurrent.futures.CancelledError` after the executor's `cancel`.
        """
        raise NotImplementedError

    def close(self) -> None:
        """End what has not ended."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Queue(Batch):
    """A batch whose requests wait here until there is room for them."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, Request]] = deque()
        self._submitted = 0

    def submit(self, request: Request) -> int:
        self.waiting.append((self._submitted, request))
        self._submitted += 1
        return self._submitted - 1

    def close(self) -> None:
        self.waiting.clear()


class Executor:
    """Runs requests; a context manager that gives back what it holds."""

    count = 1  # how many run at once
    queued = 1  # how many to submit for each that runs, so that none waits for this process
    runs_functions = True  # any that is asked for, and not only measurements of single kernels
    shares_files = True  # whether its requests see the files of this machine, such as the cache

    def begin(self) -> Batch:
        """A batch of requests of its own."""
        raise NotImplementedError

    def map(
        self, requests: Sequence[Request], progress: Callable[[Outcome], None] | None = None
    ) -> list[Outcome]:
        """Run all requests and return their outcomes in the same order.

        `progress` is called in this process as each one ends. No error of a request is raised.
        """
        outcomes: dict[int, Outcome] = {}
        with self.begin() as batch:
            for request in requests:
                batch.submit(request)
            for number, outcome in batch.results():
                outcomes[number] = outcome
                if progress is not None:
                    progress(outcome)
        return [outcomes[number] for number in range(len(requests))]

    def devices(self, family: str, needs: Sequence[str], is_apart: bool) -> Devices | None:
        """Who measures kernels for machines that have `needs`; None where there is nobody.

        `is_apart`: a kernel that fails there may end its process.
        """
        raise NotImplementedError

    def cancel(self) -> None:
        """End what runs, from any thread; results of all batches then raise CancelledError."""

    def close(self) -> None:
        """Give back what is held; idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Devices:
    """Devices of one name, as tuning records have it, and what runs requests on them.

    The name is empty for this machine's processor, which the build's options name.
    """

    name: str
    executor: Executor
    is_elsewhere: bool = False  # so that a request says which device it is for


class Here(Executor):
    """This process, one request after the other."""

    def begin(self) -> Batch:
        """A batch that runs while its results are taken."""
        return _Inline()


class _Inline(Queue):
    def results(self) -> Iterator[tuple[int, Outcome]]:
        while self.waiting:
            number, request = self.waiting.popleft()
            started_s = time.monotonic()
            value, error = None, None
            try:
                value = resolve(request.function)(*request.arguments)
            except AotcError as raised:
                error = raised
            yield number, Outcome(request, value, error, time.monotonic() - started_s)


def resolve(name: str) -> Any:
    """The object that a dotted name `package.module:attribute` means."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def describe(error: AotcError) -> tuple[str, dict[str, Any]]:
    """A typed error as plain values: its class and its fields."""
    kind = f"{type(error).__module__}:{type(error).__qualname__}"
    return kind, {name: _plain(value) for name, value in error.fields.items()}


def restore(kind: str, fields: dict[str, Any]) -> AotcError:
    """The error that `describe` described; raises ValueError for what is not an error of aotc's."""
    found = resolve(kind) if kind.startswith("aotc.") and "__" not in kind else None
    if not (isinstance(found, type) and issubclass(found, AotcError)):
        raise ValueError(f"`{kind}` is not an error of aotc's")
    return found(**fields)


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def keep_text(folder: Path, name: str, suffix: str, data: bytes) -> str:
    """Write a failed kernel's text to a file of its own and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)
    path = folder / f"aotc-{stem}.{suffix}"
    # Beside, then renamed: in a folder that others write to, the name may be a link of theirs.
    beside = folder / f"aotc-{stem}-{secrets.token_hex(8)}.{suffix}"
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    try:
        return str(beside.replace(path))
    except OSError:  # somebody else's, where only they may replace it
        return str(beside)


def pack(value: Any) -> bytes:
    """Plain values for another machine: canonical MessagePack, numbers with a point as text.

    Equal values have equal bytes, so that a task can be named by their digest.
    """
    return encode(_packed(value))


def unpack(data: bytes, path: str) -> Any:
    """What `pack` wrote, lists as tuples; raises BundleError for anything else."""
    return _unpacked(decode(data, LIMITS, path))


def _packed(value: Any) -> Any:
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, (list, tuple)):
        return [_packed(each) for each in value]
    if isinstance(value, dict):
        return {"map": [[name, _packed(each)] for name, each in value.items()]}
    return value


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_unpacked(each) for each in value)
    if isinstance(value, dict):
        if "float" in value:
            return float.fromhex(value["float"])
        return {name: _unpacked(each) for name, each in value["map"]}
    return value


def local_devices(
    family: str, needs: Sequence[str], here: Callable[[], Executor]
) -> Devices | None:
    """The first device of this machine that has `needs`, with an executor that `here` makes."""
    driver = drivers.load(family)
    if not set(needs) <= driver.features():
        return None
    names = [name for _, name, architecture, _ in driver.describe() if architecture in needs]
    return Devices(device_word(names[0]) if names else "", here())


def device_word(name: str) -> str:
    """A device's name as one word of a tuning record: `NVIDIA H200` → `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown"
