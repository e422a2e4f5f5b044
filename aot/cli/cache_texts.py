"""Keys of the artifact cache as people read them: what an entry is, and why one was missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotc.cache import Key
    from aotc.cache.collect import Explanation

Fields = Mapping[str, Any]


def _binary(fields: Fields) -> str:
    function = str(fields.get("function", "?"))
    if "source" not in fields:
        return function.replace("_", " ")
    config = fields.get("config") or "no choices"
    return f"kernel {function} ({short(config)}), source {short(fields['source'])}"


def _tuning(fields: Fields) -> str:
    return f"choice for kernel {short(fields.get('spec'))}, {fields.get('mode')}"


# Bucket → what an entry of it is, from the fields of its key.
MEANINGS: dict[str, Callable[[Fields], str]] = {
    "binaries": _binary,
    "captures": lambda fields: f"capture of model {short(fields.get('spec'))}",
    "programs": lambda fields: f"program of graph {short(fields.get('graph'))}",
    "tuning": _tuning,
}


def summary(key: Key | None) -> str:
    """What an entry is: a kernel, a model's capture, a measured choice."""
    if key is None:
        return "(damaged record)"
    return MEANINGS[key.bucket](dict(key.fields))


def target_of(key: Key | None) -> str | None:
    """What its code is for; None where it is for any."""
    fields = fields_of(key) or {}
    names = [str(fields[name]) for name in ("architecture", "target", "device") if name in fields]
    return " ".join(names) or None


def fields_of(key: Key | None) -> dict[str, Any] | None:
    """A key's fields by name."""
    return dict(key.fields) if key else None


def explained(items: Sequence[Explanation], has_all: bool) -> Iterator[tuple[Explanation, int]]:
    """The misses to print, each with the number of those that it stands for besides its own: keys
    of the same kind that differ in the same fields. With `has_all` each stands for itself."""
    groups: dict[object, list[Explanation]] = {}
    for place, item in enumerate(items):
        fields = tuple(row.field for row in item.differing)
        reason = place if has_all else (item.wanted.bucket, item.nearest is None, fields)
        groups.setdefault(reason, []).append(item)
    for first, *others in groups.values():
        yield first, len(others)


def explanation_lines(item: Explanation, more: int = 0) -> Iterator[str]:
    """Why a key missed, for people, and how many others missed for the same reason."""
    yield f"{item.wanted.digest[:12]}  {summary(item.wanted)}"
    if item.nearest is None:
        yield "  no similar key was stored before"
    else:
        yield f"  nearest stored: {item.nearest.digest[:12]}, which differs in"
        for difference in item.differing:
            yield f"    {difference.field}: {short(difference.stored)} → {short(difference.wanted)}"
    if more:
        yield f"  and {more} more of this kind for the same reason: --all prints them"


def short(value: object) -> str:
    """A field's value on a line: digests are cut to eight digits."""
    text = str(value)
    is_digest = len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)
    return text[:8] if is_digest else text if len(text) <= 40 else text[:39] + "…"


def age_text(seconds: float) -> str:
    """`3 d ago`; what a wrong clock dates into the future is `now`."""
    for unit, size_s in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size_s:
            return f"{seconds / size_s:.0f} {unit} ago"
    return "now"
