"""The statistics of programs as text for Prometheus, in its text-based exposition format 0.0.4."""

from __future__ import annotations

from .statistics import BOUNDS_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from .statistics import EntryStats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Of a program: name, type, help, and what it is.
OF_PROGRAMS: tuple[tuple[str, str, str, str], ...] = (
    ("sessions", "gauge", "Sessions that are open.", "sessions"),
    ("arena_bytes", "gauge", "Bytes of the arenas of all sessions.", "arena_bytes"),
    ("state_bytes", "gauge", "Bytes of the states of all sessions.", "state_bytes"),
    ("weights_bytes", "gauge", "Bytes of the stored weights.", "weights_bytes"),
    ("threads", "gauge", "Host threads that share the work of a call.", "threads"),
)
# The same of what has a program: a `Deployment`, a `Batcher`.
AROUND_PROGRAMS: tuple[tuple[str, str, str, str], ...] = (
    ("swaps_total", "counter", "Bundles that took another's place.", "swaps"),
    ("failed_swaps_total", "counter", "Swaps that left the old bundle serving.", "failed_swaps"),
    ("batches_total", "counter", "Calls that a batcher made.", "batches"),
    ("batched_requests_total", "counter", "Requests that a batcher took.", "requests"),
    ("overloads_total", "counter", "Requests for which there was no place.", "overloads"),
    ("timeouts_total", "counter", "Requests that waited too long in the queue.", "timeouts"),
    ("waiting_requests", "gauge", "Requests that wait for a batch.", "waiting"),
)


def metrics_text(programs: Any) -> str:
    """The statistics of a program, or of several by name, for a server's `/metrics`.

    programs: what has `stats()`, such as a program or a deployment, or a mapping of such to the
    value of their label `model`. A server gives it as `metrics.CONTENT_TYPE`.
    """
    named: Mapping[str, Any] = {"": programs} if hasattr(programs, "stats") else programs
    found = [(name, each.stats(), each) for name, each in named.items()]
    lines: list[str] = []
    lines += _family("info", "gauge", "The bundle that runs; its value is 1.", (
        (_labels(model=name, digest=stats.digest, target=stats.target, device=stats.device), 1)
        for name, stats, _ in found
    ))  # fmt: skip
    counted = [(name, entry) for name, stats, _ in found for entry in stats.entries
               if stats.is_counting]  # fmt: skip
    lines += _family("calls_total", "counter", "Calls that gave a result.", (
        (_labels(model=name, entry=entry.name), entry.calls) for name, entry in counted
    ))  # fmt: skip
    lines += _family("errors_total", "counter", "Calls that raised, by the error's code.", (
        (_labels(model=name, entry=entry.name, code=code), count)
        for name, entry in counted
        for code, count in entry.errors.items()
    ))  # fmt: skip
    lines += _histograms(counted)
    lines += _family("shapes", "gauge", "Combinations of dynamic sizes that are kept.", (
        (_labels(model=name, entry=entry.name), len(entry.shapes))
        for name, stats, _ in found
        for entry in stats.entries
    ))  # fmt: skip
    for name, kind, text, field in OF_PROGRAMS:
        rows = [(_labels(model=model), getattr(stats, field)) for model, stats, _ in found]
        lines += _family(name, kind, text, rows)
    lines += _family("fallback_calls_total", "counter", "Calls of ops that torch ran.", (
        (_labels(model=name, op=op), count)
        for name, stats, _ in found
        for op, count in stats.fallback_calls.items()
    ))  # fmt: skip
    for name, kind, text, field in AROUND_PROGRAMS:
        rows = [(_labels(model=model), getattr(each, field)) for model, _, each in found
                if type(getattr(each, field, None)) is int]  # fmt: skip
        lines += _family(name, kind, text, rows)
    return "".join(line + "\n" for line in lines)


def _family(name: str, kind: str, text: str, rows: Any) -> Iterator[str]:
    """The lines of one metric; none where it has no samples."""
    is_first = True
    for labels, value in rows:
        if is_first:
            yield f"# HELP aotc_{name} {text}"
            yield f"# TYPE aotc_{name} {kind}"
            is_first = False
        yield f"aotc_{name}{labels} {value}"


def _histograms(counted: list[tuple[str, EntryStats]]) -> Iterator[str]:
    name = "aotc_call_seconds"
    if counted:
        yield f"# HELP {name} Seconds of a call, as its caller waits."
        yield f"# TYPE {name} histogram"
    for model, entry in counted:
        of_entry = {"model": model, "entry": entry.name}
        for bound, count in zip(BOUNDS_S, entry.buckets, strict=True):
            yield f"{name}_bucket{_labels(**of_entry, le=f'{bound:.6g}')} {count}"
        yield f"{name}_bucket{_labels(**of_entry, le='+Inf')} {entry.calls}"
        yield f"{name}_sum{_labels(**of_entry)} {entry.seconds!r}"
        yield f"{name}_count{_labels(**of_entry)} {entry.calls}"


def _labels(**labels: Any) -> str:
    """Names and values in braces; a name without a value is left out, which says the same."""
    rows = [f'{name}="{_escaped(str(value))}"' for name, value in labels.items() if value != ""]
    return f"{{{','.join(rows)}}}" if rows else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
