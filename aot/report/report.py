"""`report`: the facts of a bundle → one HTML page that needs no network and no other file.

The page runs one script of ours, which its content security policy names by digest, as it does the
style; whatever the bundle says is text. The same bundle gives the same page.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from aotc.aot.charts.calls import call_pictures
from aotc.aot.charts.markup import Markup, TooLong, joined, limited, tag, trusted
from aotc.aot.charts.units import bytes_text, time_text
from aotc.aot.facts.bundle_facts import PRECISIONS, BundleFacts, Tuned, as_map, as_rows, variants
from aotc.aot.facts.layouts import more_bytes
from aotc.aot.report.parts import (
    Cell,
    Number,
    bytes_cell,
    code,
    facts,
    folded,
    paragraph,
    scrolled,
    source,
    table,
)
from aotc.aot.report.steps import Step, Subject, number_of, subject_of
from aotc.aot.report.target_part import kernel_id, target_part
from aotc.aot.traits import FOLLOWED_EARLY
from aotc.runtime.errors import BundleLimit

LINES_LIMIT = 5000  # rows of a table; what is more is counted
LETTERS_LIMIT = 1 << 26  # of all text on a page


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured, as the commands print it with `--json`; empty for nothing."""

    profiles: Sequence[Mapping[str, Any]] = ()  # of entries of targets
    bench: Mapping[str, Any] = field(default_factory=dict)
    golden: Sequence[Mapping[str, Any]] = ()  # findings of `aotc verify --golden`


def report(bundle: BundleFacts, measured: Measured | None = None) -> str:
    """The page. Raises `BundleLimit` for a bundle that would make one of more than LETTERS_LIMIT
    letters."""
    try:
        with limited(LETTERS_LIMIT):
            return _report(bundle, measured or Measured())
    except TooLong:
        found, limit = "more", f"{LETTERS_LIMIT} letters"
        raise BundleLimit(path=bundle.path, what="what it says", found=found, limit=limit) from None


def _report(bundle: BundleFacts, measured: Measured) -> str:
    subjects = _subjects(bundle, measured)
    model = str(bundle.provenance.get("model") or "bundle")
    parts: list[tuple[str, str, list[Markup]]] = [
        ("overview", "Overview", list(_overview(bundle, subjects))),
        ("entries", "Entry points", list(_entries(bundle))),
    ]
    for number, subject in enumerate(subjects):
        name = f"target-{number}"
        title = subject.each.target
        if len(bundle.manifest.entries) > 1:
            title += f": {subject.each.entry}"
        parts.append((name, title, list(target_part(bundle, subject, name))))
    if bundle.manifest.entries and any(len(plan.variants) > 1 for plan in bundle.plans.values()):
        parts.append(("ranges", "Ranges of sizes", list(_ranges(bundle))))
    if measured.bench:
        parts.append(("bench", "Benchmark", list(_bench(measured.bench))))
    parts += [
        ("kernels", "Kernel sources", list(_sources(bundle, subjects))),
        ("numbers", "Golden numbers", list(_numbers(bundle, measured))),
        ("weights", "Weights", list(_weights(bundle))),
        ("provenance", "Provenance", list(_provenance(bundle))),
        ("files", "Files", list(_files(bundle))),
    ]
    return _page(f"{model}: aotc report", model, parts)


def _page(title: str, model: str, parts: Sequence[tuple[str, str, list[Markup]]]) -> str:
    style, script = _own("style.css"), _own("script.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", trusted(style)),
    )
    links = joined(tag("a", text, href=f"#{name}") for name, text, _ in parts)
    sections = [
        tag("section", tag("h2", text, id=f"{name}-head"), *inside, id=name,
            aria_labelledby=f"{name}-head")
        for name, text, inside in parts
    ]  # fmt: skip
    body = tag(
        "body",
        tag("a", "to the content", href="#main", class_="skip"),
        tag("nav", links, aria_label="sections"),
        tag("main", tag("h1", model), *sections, id="main"),
        tag("script", trusted(script)),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _own(name: str) -> str:
    """A file of ours beside this one."""
    return files("aotc.aot.report").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _subjects(bundle: BundleFacts, measured: Measured) -> list[Subject]:
    """The first variant of each entry of each target: that of the example's sizes."""
    found: dict[tuple[str, str], Subject] = {}
    for each in variants(bundle):
        key = (each.target, each.entry)
        if key not in found:
            found[key] = subject_of(bundle, each, measured.profiles)
    return list(found.values())


def _overview(bundle: BundleFacts, subjects: Sequence[Subject]) -> Iterator[Markup]:
    manifest = bundle.manifest
    weights = manifest.weights.nbytes if manifest.weights else 0
    whole = weights + sum(entry.nbytes for entry in bundle.files)
    codes = [manifest.file(row.library).nbytes for row in manifest.targets]
    yield facts(
        [
            ("bundle digest", code(f"sha256:{bundle.digest}")),
            ("built by", manifest.producer or "–"),
            ("targets", ", ".join(row.name for row in manifest.targets)),
            ("entry points", ", ".join(entry.name for entry in manifest.entries)),
            ("size", bytes_text(whole)),
            ("weights", bytes_text(weights)),
            ("machine code", ", ".join(map(bytes_text, codes))),
            ("states", str(len(manifest.states))),
            ("features", ", ".join(manifest.features) or "–"),
        ]
    )
    rows: list[Sequence[Cell]] = [
        (
            subject.each.target,
            subject.each.entry,
            len(subject.steps),
            len({step.symbol for step in subject.steps}),
            Number(subject.time_us, time_text(subject.time_us) if subject.time_us else "–"),
            subject.time_from or "–",
            bytes_cell(subject.each.plan.arena_bytes),
        )
        for subject in subjects
    ]
    heads = ("target", "entry", "steps", "kernels", "time of all steps", "from", "arena")
    yield table(heads, rows, "targets and entries")


def _entries(bundle: BundleFacts) -> Iterator[Markup]:
    for entry in bundle.manifest.entries:
        yield tag("h3", entry.name)
        rows: list[Sequence[Cell]] = []
        for role, specs in (("input", entry.inputs), ("output", entry.outputs)):
            rows += [
                (role, code(spec.name), code(_type(spec.dtype, spec.shape) + spec.order_text),
                 bytes_cell(spec.nbytes) if spec.is_fixed else None)
                for spec in specs[:LINES_LIMIT]
            ]  # fmt: skip
        yield table(("role", "name", "type", "size"), rows, f"{entry.name}: inputs and outputs")
        dims = [str(dim) for dim in entry.dims if dim.input is not None]
        if dims:
            yield tag("p", "Dynamic sizes: ", code(", ".join(dims)))
        if entry.guards:
            yield tag("p", "Conditions: ", code("; ".join(guard.text for guard in entry.guards)))
    if bundle.manifest.states:
        yield tag("h3", "States")
        yield paragraph("What a session keeps from one call to the next.")
        states: list[Sequence[Cell]] = [
            (code(spec.name), code(_type(spec.dtype, spec.shape)),
             bytes_cell(spec.nbytes) if spec.is_fixed else None)
            for spec in bundle.manifest.states
        ]  # fmt: skip
        yield table(("name", "type", "size"), states, "states")


def _ranges(bundle: BundleFacts) -> Iterator[Markup]:
    yield paragraph(
        "Where sizes are dynamic, each range has kernels of its own. Figures are those at the "
        "smallest sizes of a range."
    )
    rows: list[Sequence[Cell]] = [
        (
            each.target,
            each.entry,
            ", ".join(f"{name} {low}..{high}" for name, low, high in each.ranges) or "all",
            len(each.plan.steps),
            bytes_cell(each.plan.arena_bytes),
        )
        for each in variants(bundle)
    ]
    yield table(("target", "entry", "range", "steps", "arena"), rows, "ranges of sizes")


def _bench(record: Mapping[str, Any]) -> Iterator[Markup]:
    rows: list[tuple[str, list[float]]] = []
    for row in map(as_map, as_rows(record.get("results"))):
        found = [number_of(value) for value in as_rows(row.get("quantiles_us"))]
        rows.append((str(row.get("kind", "?")), [value for value in found if value is not None]))
    yield paragraph(f"aotc bench on {record.get('machine', '?')}, {record.get('device', '?')}.")
    for title, picture in call_pictures(rows):
        yield tag("figure", tag("figcaption", title), scrolled(picture, title))


def _sources(bundle: BundleFacts, subjects: Sequence[Subject]) -> Iterator[Markup]:
    yield paragraph(
        "Each distinct kernel: the Triton source of the chosen form, and the candidates that it "
        "was chosen from, the cost model's choice first."
    )
    seen: set[str] = set()
    for subject in subjects:
        known = {
            str(as_map(row).get("digest")): as_map(row)
            for row in as_rows(bundle.sources[subject.each.target].get("kernels"))
        }
        tuned = {line.digest: line for line in bundle.tuned(subject.each.target)}
        for step in subject.steps:
            name = kernel_id(step, subject.each.target)
            if step.kind == "kernel" and name not in seen:
                seen.add(name)
                line = tuned.get(step.source)
                yield _kernel(bundle, subject, step, known.get(step.source, {}), line, name)
    if not seen:
        yield paragraph("There are none.")


def _kernel(
    bundle: BundleFacts,
    subject: Subject,
    step: Step,
    row: Mapping[str, Any],
    tuned: Tuned | None,
    name: str,
) -> Markup:
    target = subject.each.target
    choice = str(bundle.kernel_facts(target, step.symbol).get("choice", ""))
    forms = {
        str(form[0]): str(form[2])
        for form in as_rows(row.get("forms"))
        if isinstance(form, list) and len(form) >= 3
    }
    candidates = [as_map(each) for each in as_rows(row.get("candidates"))]
    texts = [_candidate(each) for each in candidates]
    chosen = {at for at, text in enumerate(texts) if text == candidate_of(choice)}
    form = str(candidates[min(chosen)].get("form", "")) if chosen else next(iter(forms), "")
    text = bundle.texts.get(forms.get(form, ""), "")
    measured = _record_times(tuned)
    rows: list[Sequence[Cell]] = [
        (
            at,
            code(each),
            " × ".join(map(str, as_rows(candidate.get("grid")))) or "–",
            "chosen" if at in chosen else "",
            time_text(measured[each]) if each in measured else "",
        )
        for at, (each, candidate) in enumerate(zip(texts, candidates, strict=True))
    ]
    heads = ("order", "candidate", "grid", "", "measured")
    inside = [tag("p", "Chosen: ", code(choice or "–"), ", symbol ", code(step.symbol))]
    if rows:
        inside.append(table(heads, rows, f"candidates of {step.name}", chosen=chosen))
    inside.append(source(text) if text else paragraph("The bundle has no source of this kernel."))
    summary = joined((tag("b", step.name), tag("span", f" · {target}", class_="muted")))
    return folded(summary, *inside, id_=name)


def _candidate(row: Mapping[str, Any]) -> str:
    """As the tuning record writes a choice."""
    words = [f"form={row['form']}"] if row.get("form") else []
    for pair in as_rows(row.get("config")):
        if isinstance(pair, list) and len(pair) == 2:
            words.append(f"{pair[0]}={pair[1]}")
    return ",".join(words) or "-"


def candidate_of(choice: str) -> str:
    """The candidate of a choice, which may say in addition how the next launch follows."""
    words = (word for word in choice.split(",") if not word.startswith(f"{FOLLOWED_EARLY}="))
    return ",".join(words)


def _record_times(line: Tuned | None) -> dict[str, float]:
    """Choice → microseconds, of the chosen one and the runner-up in the tuning record."""
    if line is None:
        return {}
    pairs = ((line.runner_up, line.runner_up_time_us), (line.choice, line.time_us))
    times = {candidate_of(choice): number_of(time) for choice, time in pairs}
    return {choice: time_us for choice, time_us in times.items() if time_us is not None}


def _numbers(bundle: BundleFacts, measured: Measured) -> Iterator[Markup]:
    if not bundle.golden:
        yield paragraph("The bundle has no golden numbers.")
        return
    yield paragraph(
        "An example and the exported model's answer are in the bundle. An error is the largest "
        "difference over the largest absolute value that was expected."
    )
    errors = {str(row.get("subject")): number_of(row.get("difference")) for row in measured.golden}
    several = len(bundle.manifest.entries) > 1
    rows: list[Sequence[Cell]] = []
    for entry in bundle.manifest.entries:
        golden = bundle.golden.get(entry.name)
        for spec in entry.outputs if golden else ():
            tolerance = golden.tolerances[spec.name] if golden else 0.0
            error = errors.get(f"{entry.name}.{spec.name}" if several else spec.name)
            rows.append(
                (
                    entry.name,
                    code(spec.name),
                    code(_type(spec.dtype, spec.shape)),
                    Number(tolerance, f"{tolerance:.3g}"),
                    Number(error, f"{error:.3g}") if error is not None else "not measured",
                    "" if error is None else "ok" if error <= tolerance else tag("b", "DIFFERS"),
                )
            )
    heads = ("entry", "output", "type", "allowed error", "error here", "")
    yield table(heads, rows, "golden numbers")
    if not measured.golden:
        yield paragraph("aotc report --measure runs the bundle and fills the last column.")


def _weights(bundle: BundleFacts) -> Iterator[Markup]:
    tensors = sorted(bundle.tensors.values(), key=lambda each: (-each.nbytes, each.name))
    whole = sum(each.nbytes for each in tensors) or 1
    if not tensors:
        yield paragraph("The bundle holds no weights.")
        return
    rows: list[Sequence[Cell]] = [
        (
            code(each.name),
            code(_type(each.dtype, each.shape)),
            bytes_cell(each.nbytes),
            Number(each.nbytes / whole, f"{each.nbytes / whole:.1%}"),
        )
        for each in tensors[:LINES_LIMIT]
    ]
    yield tag("p", f"{len(tensors)} stored tensors, {bytes_text(whole)}, largest first.")
    yield table(("tensor", "stored as", "size", "share"), rows, "weights")
    if len(tensors) > LINES_LIMIT:
        yield paragraph(f"and {len(tensors) - LINES_LIMIT} more.")
    if bundle.layouts:
        yield tag("h3", "Stored in several layouts")
        yield tag("p", f"{bytes_text(more_bytes(list(bundle.layouts)))} are second layouts.")
        layouts: list[Sequence[Cell]] = [
            (
                code(row["parameter"])
                if row["part"] == "values"
                else joined(("scales of ", code(row["parameter"]))),
                bytes_cell(row["bytes"]),
                "; ".join(
                    f"{each['name']} ({bytes_text(each['bytes'])}), read by "
                    + (", ".join(each["read_by"]) or "-")
                    for each in row["tensors"]
                ),
            )
            for row in bundle.layouts[:LINES_LIMIT]
        ]
        yield table(("parameter", "size", "tensors"), layouts, "layouts")


def _provenance(bundle: BundleFacts) -> Iterator[Markup]:
    rows: list[Sequence[Cell]] = [
        (joined((name,)), code(text)) for name, text in _leaves("", bundle.provenance) if text
    ]
    for row in bundle.manifest.targets:
        rows.append((f"target {row.name} needs", code(", ".join((row.device, *row.needs)))))
        for key, what in PRECISIONS:
            if precision := bundle.build_facts(row.name).get(key):
                rows.append((f"target {row.name} precision of {what}", code(str(precision))))
    for each in bundle.manifest.backends:
        rows.append((f"native library {each.name}", code(f"{each.version} {each.sha256.hex()}")))
    yield table(("fact", "value"), rows, "provenance")


def _leaves(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, each in value.items():
            if (name, key) != ("", "targets"):
                yield from _leaves(f"{name} {key}".strip(), each)
    elif isinstance(value, list):
        yield name, ", ".join(map(str, value))
    else:
        yield name, str(value)


def _files(bundle: BundleFacts) -> Iterator[Markup]:
    rows: list[Sequence[Cell]] = [
        (code(entry.name), bytes_cell(entry.nbytes), code(entry.sha256.hex()))
        for entry in bundle.files
    ]
    if bundle.manifest.weights is not None:
        entry = bundle.manifest.weights
        chunks = f"{len(entry.chunks)} digests, of {bytes_text(entry.chunk_bytes)} each"
        rows.append((code(entry.name), bytes_cell(entry.nbytes), chunks))
    yield folded(f"{len(rows)} files, every byte of which has its digest",
                 table(("file", "size", "sha256"), rows, "files"))  # fmt: skip


def _type(dtype: str, shape: Sequence[Any]) -> str:
    return f"{dtype}[{', '.join(map(str, shape))}]"
