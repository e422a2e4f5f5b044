"""What a program has done and holds: calls, errors and latencies by entry point, shapes, memory.

Calls are counted by sessions of a class of their own, so that a program that nobody asked for it
pays nothing. `metrics.py` writes the same as text for Prometheus.
"""

from __future__ import annotations

import _thread
from bisect import bisect_left
from time import perf_counter

from ..record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .entry import LoadedEntry
    from .session import Bound, Session, Shapes

# Upper bounds of the histogram's buckets in seconds: 10 us to 10 s in steps of 1, 2.5 and 5.
BOUNDS_S = tuple(
    factor * 10.0**power for power in range(-5, 1) for factor in (1.0, 2.5, 5.0)
) + (10.0,)  # fmt: skip


class Tally:
    """Calls and errors of one entry point; safe to use from several threads."""

    __slots__ = ("_lock", "counts", "errors", "sum_s")

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.errors: dict[str, int] = {}
        self.sum_s = 0.0

    def ended(self, seconds: float) -> None:
        """Count a call that gave a result."""
        with self._lock:
            self.counts[bisect_left(BOUNDS_S, seconds)] += 1
            self.sum_s += seconds

    def failed(self, error: BaseException) -> None:
        """Count a call that raised."""
        code = getattr(error, "code", None)
        name = code if isinstance(code, str) else type(error).__name__
        with self._lock:
            self.errors[name] = self.errors.get(name, 0) + 1

    def read(self) -> tuple[list[int], float, dict[str, int]]:
        """Calls by bucket, the sum of their seconds, and errors by code, of one moment."""
        with self._lock:
            return list(self.counts), self.sum_s, dict(self.errors)


class Statistics:
    """What calls are counted in, by the name of their entry point. Several programs may have one,
    such as those that follow each other in a `Deployment`: then it holds the calls of all."""

    __slots__ = ("_tallies",)

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}

    def tally(self, name: str) -> Tally:
        """That of an entry point."""
        found = self._tallies.get(name)
        return self._tallies.setdefault(name, Tally()) if found is None else found


class Counting:
    """Beside a class of sessions: has its calls counted in the program's statistics."""

    __slots__ = ()
    _program: Any
    _main: LoadedEntry | None

    def _tally(self, entry: LoadedEntry | None) -> Tally:
        statistics: Statistics = self._program._statistics
        return statistics.tally("" if entry is None else entry.name)

    def _call(
        self, entry: LoadedEntry | None, arrays: tuple[Any, ...], out: Any, named: dict[str, Any]
    ) -> Any:
        tally = self._tally(entry)
        began_s = perf_counter()
        try:
            result = super()._call(entry, arrays, out, named)  # type: ignore[misc]
        except BaseException as error:
            tally.failed(error)
            raise
        tally.ended(perf_counter() - began_s)
        return result

    def run_at(self, addresses: list[int], shapes: Shapes = ()) -> None:
        """As of the session."""
        run: Callable[..., Any] = super().run_at  # type: ignore[misc]
        _counted(run, self._tally(self._main))(addresses, shapes)

    def _bind(
        self, entry: LoadedEntry | None, arrays: tuple[Any, ...], out: Any, named: dict[str, Any]
    ) -> Bound:
        bound: Bound = super()._bind(entry, arrays, out, named)  # type: ignore[misc]
        bound._run = _counted(bound._run, self._tally(entry))
        return bound


def _counted(run: Callable[..., Any], tally: Tally) -> Callable[..., Any]:
    """The same, counted."""

    def counted(*arguments: Any) -> Any:
        began_s = perf_counter()
        try:
            result = run(*arguments)
        except BaseException as error:
            tally.failed(error)
            raise
        tally.ended(perf_counter() - began_s)
        return result

    return counted


_COUNTING: dict[type[Session], type[Session]] = {}


def counting(kind: type[Session]) -> type[Session]:
    """The class of sessions of this kind whose calls are counted."""
    found = _COUNTING.get(kind)
    if found is None:
        found = _COUNTING[kind] = type(kind.__name__, (Counting, kind), {"__slots__": ()})
    return found


class EntryStats(Record):
    """Of one entry point.

    calls: those that gave a result; errors: how many raised each error, by its code, or by the name
    of its class where it is none of ours; seconds: of all `calls` together, on a device without the
    time that it goes on after a call has returned; buckets: for each of `BOUNDS_S` the calls that
    took no longer; shapes: sizes of the shapes that are kept, by name, in the order of their first
    use.
    """

    name: str
    calls: int
    errors: dict[str, int]
    seconds: float
    buckets: tuple[int, ...]
    shapes: tuple[dict[str, int], ...]


class Stats(Record):
    """Of a program, at one moment.

    digest, target, device, threads: as of `Program`; is_counting: whether calls are counted, else
    `calls`, `errors` and `buckets` are zero; sessions: how many are open, the program's own
    included; arena_bytes, state_bytes: of all of them; weights_bytes: of the tensors that are
    stored; fallback_calls: how often torch ran each op.
    """

    digest: str
    target: str
    device: str
    threads: int
    is_counting: bool
    entries: tuple[EntryStats, ...]
    sessions: int
    arena_bytes: int
    state_bytes: int
    weights_bytes: int
    fallback_calls: dict[str, int]

    def as_map(self) -> dict[str, Any]:
        """The same as plain data, which JSON can hold."""
        tree = {name: getattr(self, name) for name in type(self)._fields}
        tree["entries"] = [
            {name: getattr(entry, name) for name in type(entry)._fields} for entry in self.entries
        ]
        return tree


def stats_of(program: Any) -> Stats:
    """What `Program.stats` gives."""
    loaded = program._loaded
    users = [] if loaded is None else loaded.sessions()
    sessions = [session for session in users if session._loaded is not None]
    spans = {} if loaded is None else loaded.spans
    statistics = program._statistics
    entries = tuple([_entry_stats(program, entry, statistics) for entry in program._entries])
    return Stats(
        digest=program.digest,
        target=program.target,
        device=program.device,
        threads=program.threads,
        is_counting=statistics is not None,
        entries=entries,
        sessions=len(sessions),
        arena_bytes=sum(map(_arena_bytes, sessions)),
        state_bytes=sum(slot.nbytes for session in sessions for slot in session._slots),
        weights_bytes=sum(nbytes for _, nbytes in spans.values()),
        fallback_calls=program.fallback_calls,
    )


def _entry_stats(program: Any, entry: LoadedEntry, statistics: Statistics | None) -> EntryStats:
    tally = Tally() if statistics is None else statistics.tally(entry.name)
    counts, seconds, errors = tally.read()
    running, buckets = 0, []
    for count in counts[:-1]:
        running += count
        buckets.append(running)
    keys = [key for key in list(program._shapes) if key[0] == entry.number]
    names = [dim.name for dim in entry.dims]
    shapes = tuple([dict(zip(names, key[1:], strict=False)) for key in keys]) if names else ()
    return EntryStats(
        name=entry.name,
        calls=sum(counts),
        errors=errors,
        seconds=seconds,
        buckets=tuple(buckets),
        shapes=shapes,
    )


def _arena_bytes(session: Session) -> int:
    """Those of the arena that a session has now."""
    shared = session._shared
    if shared is not None:
        return int(shared.arena.nbytes)
    fixed = session._program.plan.fixed
    return 0 if fixed is None else fixed.arena_bytes
