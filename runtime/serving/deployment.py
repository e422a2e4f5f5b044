"""A bundle that serves, and another one in its place while calls go on.

    deployment = Deployment("v1.aotc")
    deployment(x)                        any thread, any time
    deployment.swap("v2.aotc")           loaded and checked beside the first, then in its place

A call takes the program that serves when it begins. `swap` retires the old program: its calls and
sessions go on with its code and weights, which are unloaded when the last of them has ended. A call
that meets a program just as it is retired raises `ProgramClosed` before it has run anything, and
begins again with the new one.
"""

from __future__ import annotations

import _thread

from ..errors import ProgramClosed, SwapIncompatible, SwapRunning
from ..loading import find_statistics, load
from ..programs.session import refuse_copy
from ..settings import wait_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from typing import Any, Self

    from ..programs.entry import LoadedEntry
    from ..programs.program import Program
    from ..programs.session import Bound, Session
    from ..programs.statistics import Stats

DRAIN_S = 60.0


class Deployment:
    """A program that another bundle can take the place of; called like the program, from any
    thread.

    swaps, failed_swaps: how many there were; program: the one that serves now. Sessions and bound
    calls belong to the program that served when they were made, which stays in memory until they
    are closed, at most `drain_s` seconds after the swap: then they raise `ProgramClosed`. So do the
    states that a program keeps for a thread's own calls: after a swap they begin anew.
    """

    __reduce_ex__ = refuse_copy

    def __init__(
        self, path: str | os.PathLike[str], drain_s: float | None = DRAIN_S, **options: Any
    ) -> None:
        """Load the bundle at `path`.

        drain_s: how long sessions of an old bundle may be used, in seconds, None for as long as
        they are open; options: as of `load`, for this bundle and for all that follow, but for
        `digest`, which is this one's. Raises what `load` raises.
        """
        digest = options.pop("digest", None)
        # Of all programs together: counters never go back.
        options["stats"] = find_statistics(options.get("stats")) or False
        self._options = options
        wait_s("drain_s", drain_s)
        self._drain_s = drain_s
        self._swapping = _thread.RLock()
        self._is_swapping = False  # read by the thread that has the lock
        self.swaps = 0
        self.failed_swaps = 0
        self.program: Program = load(path, digest=digest, **options)

    def swap(
        self,
        path: str | os.PathLike[str],
        digest: str | None = None,
        allow_changes: bool = False,
        warm_up: Callable[[Program], object] | None = None,
    ) -> Program:
        """Have the bundle at `path` serve from now on; returns its program. One swap at a time.

        digest: the bundle digest that it must have; allow_changes: also where a call that the old
        bundle takes does not fit the new one; warm_up: is given the new program before it serves.
        Raises what `load` raises, `SwapIncompatible`, what `warm_up` raises and, once the
        deployment is closed, `ProgramClosed`; the old bundle goes on serving then. In a `warm_up`
        of its own it raises `SwapRunning`; so do `drain` and `close`.
        """
        with self._swapping:
            self._refuse_in_swap()
            old = self.program
            self._is_swapping = True
            try:
                new = self._loaded(path, digest, allow_changes, warm_up)
            except BaseException:
                self.failed_swaps += 1
                raise
            finally:
                self._is_swapping = False
            self.program = new  # one atomic step
            self.swaps += 1
        self._retire(old)
        return new

    def _refuse_in_swap(self) -> None:
        if self._is_swapping:
            raise SwapRunning()

    def _loaded(
        self,
        path: str | os.PathLike[str],
        digest: str | None,
        allow_changes: bool,
        warm_up: Callable[[Program], object] | None,
    ) -> Program:
        """The program that is to serve, checked and warm."""
        self.program._open()
        new = load(path, digest=digest, **self._options)
        try:
            if not allow_changes:
                for what, found, expected in differences(self.program, new):
                    raise SwapIncompatible(path=path, what=what, found=found, expected=expected)
            if warm_up is not None:
                warm_up(new)
        except BaseException:
            new.close()
            raise
        return new

    def _retire(self, old: Program) -> None:
        """Close a program when its calls and sessions have ended; nobody waits for it."""
        loaded = old._loaded
        old._retire()
        if loaded is None or loaded.wait(0):
            old.close()
        else:
            _thread.start_new_thread(old.drain, (self._drain_s,))

    def _serve(self, function: Callable[[Program], Any]) -> Any:
        """What a function gives for the program that serves."""
        while True:
            program = self.program
            try:
                return function(program)
            except ProgramClosed:
                if program is self.program:
                    raise

    def __call__(self, *arrays: Any, out: Any = None, **arguments: Any) -> Any:
        """Run once; see `Program`."""
        while True:
            program = self.program
            try:
                return program(*arrays, out=out, **arguments)
            except ProgramClosed:  # before anything ran
                if program is self.program:
                    raise

    def entry(self, name: str) -> Callable[..., Any]:
        """A function that calls the entry point of this name of the program that serves then.

        Raises `EntryUnknown`, then or now.
        """
        self.program.entry(name)

        def call(*arrays: Any, **arguments: Any) -> Any:
            return self._serve(lambda program: program[name](*arrays, **dict(arguments)))

        return call

    def session(self, **sizes: Any) -> Session:
        """A session of the program that serves now; see `Program.session`."""
        made: Session = self._serve(lambda program: program.session(**sizes))
        return made

    def bind(self, *arrays: Any, out: Any = None, **arguments: Any) -> Bound:
        """A bound call of the program that serves now; see `Program.bind`."""
        bound: Bound = self._serve(lambda program: program.bind(*arrays, out=out, **arguments))
        return bound

    @property
    def digest(self) -> str:
        """The digest of the bundle that serves."""
        return self.program.digest

    @property
    def closed(self) -> bool:
        """Whether it serves no more."""
        return self.program.closed

    def stats(self) -> Stats:
        """Those of the program that serves; calls, errors and latencies are those of all bundles so
        far, where they are counted (`stats=True`)."""
        return self.program.stats()

    def drain(self, timeout_s: float | None = None) -> bool:
        """Take no new calls, wait for what runs, close; see `Program.drain`."""
        with self._swapping:
            self._refuse_in_swap()
            return self.program.drain(timeout_s)

    def close(self) -> None:
        """Close the program that serves; see `Program.close`."""
        with self._swapping:
            self._refuse_in_swap()
            self.program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<aotc deployment of {self.digest[:12]}, {self.swaps} swaps: {self.program!r}>"


def differences(old: Program, new: Program) -> Iterator[tuple[str, str, str]]:
    """(what, of the new program, of the old one) wherever a call that fits the old program would
    not fit the new one, or give something else. A range of sizes may become wider."""
    names = [[entry.name for entry in each._entries] for each in (new, old)]
    if names[0] != names[1]:
        yield "the list of entry points", ", ".join(names[0]), ", ".join(names[1])
        return
    for theirs, ours in zip(new._entries, old._entries, strict=True):
        yield from _of_entries(theirs, ours)
    for states in ([str(spec) + spec.name for spec in each.states] for each in (new, old)):
        names.append(states)
    if names[2] != names[3]:
        yield "the list of states", ", ".join(names[2]) or "empty", ", ".join(names[3]) or "empty"


def _of_entries(new: LoadedEntry, old: LoadedEntry) -> Iterator[tuple[str, str, str]]:
    of = f"of entry point `{new.name}`"
    for role in ("inputs", "outputs"):
        found, expected = (_listing(entry, role) for entry in (new, old))
        if found != expected:
            yield f"the list of {role} {of}", found, expected
    if new.structure != old.structure:
        yield f"the nesting of arguments {of}", str(new.structure), str(old.structure)
    ranges = {dim.name: dim for dim in old.dims}
    for dim in new.dims:
        was = ranges.get(dim.name)
        if was is not None and (was.low < dim.low or was.high > dim.high):
            yield f"the size `{dim.name}` {of}", str(dim), f"at least {was.low}..{was.high}"


def _listing(entry: LoadedEntry, role: str) -> str:
    """Names, element types and shapes, whose dynamic sizes are by name."""
    rows = []
    for spec in getattr(entry, role):
        rows.append(f"{spec.name} {spec.dtype}[{', '.join(map(str, spec.shape))}]")
    return ", ".join(rows)
