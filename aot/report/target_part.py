"""The part of a page about one entry of a target: times, graph, kernels, memory, steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate

from aotc.aot.charts.charts import Bar, Span, bars, short, timeline
from aotc.aot.charts.layered import Box, draw
from aotc.aot.charts.markup import Markup, joined, tag
from aotc.aot.charts.roofline import Work, roofline
from aotc.aot.charts.units import bytes_text, count_text, time_text
from aotc.aot.facts.bundle_facts import BundleFacts
from aotc.aot.facts.graph_file import Line
from aotc.aot.report.parts import (
    Cell,
    Number,
    bytes_cell,
    code,
    facts,
    folded,
    link,
    paragraph,
    scrolled,
    source,
    table,
    time_cell,
)
from aotc.aot.report.steps import (
    ESTIMATED,
    LIMITS_MEASURED,
    MEASURED,
    TUNED,
    Step,
    Subject,
    by_kernel,
)
from aotc.runtime.bundle.plan import Image

BARS = 16
TITLE_LENGTH = 500  # of the operations, and of the lines, in the title of a box
KINDS = ("pointwise", "row", "matmul", "attention", "call", "torch")  # series of the charts
TIMES = {
    MEASURED: "measured by `aotc profile`",
    TUNED: "measured when the kernels were tuned, each by itself",
    ESTIMATED: "estimated by the cost model, not measured",
}


def target_part(facts_: BundleFacts, subject: Subject, name: str) -> Iterator[Markup]:
    """Everything of an entry and a target; `name` begins the ids of its parts."""
    each, steps = subject.each, subject.steps
    figures = [
        ("steps of a call", str(len(steps))),
        ("distinct kernels", str(len({step.symbol for step in steps if step.kind == "kernel"}))),
        ("time of all steps", time_text(subject.time_us) if subject.time_us else "not known"),
        ("times are", _times(subject)),
        ("arena", bytes_text(each.plan.arena_bytes)),
        ("scratch of a thread", bytes_text(each.plan.scratch_bytes)),
    ]
    if each.ranges:
        sizes = ", ".join(f"{size} = {low}" for size, low, _ in each.ranges)
        figures.append(("shown at", sizes))
    yield facts(figures)
    yield from _kernels(facts_, subject, name)
    yield from _graph(subject, name)
    yield from _memory(subject)
    yield from _steps(subject, name)


def kernel_id(step: Step, target: str) -> str:
    """The id of a kernel's part."""
    return f"kernel-{target}-{step.symbol}"


def _about(step: Step, subject: Subject, name: str) -> str:
    """The id of the part about a kernel; of what torch or a native function runs, its step's."""
    if step.kind == "kernel":
        return kernel_id(step, subject.each.target)
    return f"{name}-step-{step.number}"


def series(step: Step) -> int:
    """The colour of a step: by what its group is."""
    kind = step.group.kind if step.group is not None else step.kind
    return KINDS.index(kind) if kind in KINDS else 4


def _times(subject: Subject) -> str:
    names = subject.time_from.split(", ") if subject.time_from else []
    return "; ".join(TIMES[name].replace("`", "") for name in names) or "not known"


def _kernels(facts_: BundleFacts, subject: Subject, name: str) -> Iterator[Markup]:
    rows = by_kernel(subject.steps)
    total = subject.time_us or 1.0
    drawn = [
        Bar(
            steps[0].name,
            sum(step.time_us or 0.0 for step in steps),
            f"{time_text(sum(step.time_us or 0.0 for step in steps))}, {len(steps)}×",
            series(steps[0]),
            f"#{_about(steps[0], subject, name)}",
        )
        for _, steps in rows[:BARS]
    ]
    images = {row.symbol: row.image for row in reversed(subject.each.plan.kernels)}
    yield tag("h3", "Kernels by time")
    left = tag(
        "figure",
        tag("figcaption", f"The time of a call by kernel ({_times(subject)}). Colours: what a "
            "kernel computes."),
        scrolled(bars(drawn, "time of a call by kernel"), "time by kernel"),
    )  # fmt: skip
    yield tag("div", left, _roofline(subject, name), class_="pair")
    yield _legend()
    heads = ("kernel", "launches", "time", "share", "bytes", "operations", "per byte", "of limit",
             "registers", "shared", "spills", "threads", "code", "choice")  # fmt: skip
    yield table(
        heads,
        [_kernel_row(facts_, subject, name, steps, total, images) for _, steps in rows],
        "kernels",
        body=f"{name}-kernels",
    )


def _kernel_row(
    facts_: BundleFacts,
    subject: Subject,
    name: str,
    steps: list[Step],
    total: float,
    images: Mapping[str, Image | None],
) -> list[Cell]:
    step, target = steps[0], subject.each.target
    known = facts_.kernel_facts(target, step.symbol)
    time_us = sum(each.time_us or 0.0 for each in steps)
    has_facts = all(each.bytes is not None for each in steps)
    nbytes = sum(each.bytes or 0 for each in steps) if has_facts else None
    operations = sum(each.operations or 0 for each in steps) if has_facts else None
    intensity = operations / nbytes if nbytes and operations is not None else None
    share = _share(subject, steps)
    image = images.get(step.symbol)
    return [
        link(step.name, _about(step, subject, name)),
        len(steps),
        time_cell(time_us if step.time_from else None),
        Number(time_us / total, f"{time_us / total:.1%}"),
        bytes_cell(nbytes),
        None if operations is None else Number(operations, count_text(operations)),
        None if intensity is None else Number(intensity, f"{intensity:.3g}"),
        None if share is None else Number(share, f"{share:.0%}" if share <= 1 else ">100%"),
        _figure(known.get("registers")) if image is not None else None,
        bytes_cell(image.shared_bytes) if image is not None else None,
        _figure(known.get("spill_bytes")) if image is not None else None,
        image.threads if image is not None else None,
        _bytes_or_none(known.get("code_bytes")),
        code(str(known.get("choice", "–"))),
    ]


def _figure(value: object) -> int | None:
    return value if type(value) is int else None


def _bytes_or_none(value: object) -> Number | None:
    return bytes_cell(value) if type(value) is int else None


def _share(subject: Subject, steps: list[Step]) -> float | None:
    """What the limits allow over what was measured; None for estimates."""
    is_measured = all(step.time_from not in ("", ESTIMATED) for step in steps)
    if subject.rates is None or subject.rates_from != LIMITS_MEASURED or not is_measured:
        return None
    if any(step.bytes is None for step in steps):
        return None
    by_bytes, by_operations = subject.rates
    least_us = sum(
        max((step.bytes or 0) / by_bytes, (step.operations or 0) / by_operations) * 1e6
        for step in steps
    )
    return least_us / max(sum(step.time_us or 0.0 for step in steps), 1e-9)


def _roofline(subject: Subject, name: str) -> Markup:
    works = []
    for _, steps in by_kernel(subject.steps):
        step = max(steps, key=lambda each: each.time_us or 0.0)
        figures = (step.bytes or 0, step.operations or 0, step.time_us or 0.0)
        works.append(Work(step.name, *figures, series(step), f"#{_about(step, subject, name)}"))
    picture = roofline(works, subject.rates)
    if picture is None:
        return tag("figure", tag("figcaption", "No roofline: the bundle has no graph.json."))
    note = "Each point is a kernel, as large as its time."
    if subject.rates is not None:
        note += f" The line: {subject.rates_from}."
    if ESTIMATED in subject.time_from:
        note += " Times are estimated: points lie where the cost model expects them."
    return tag("figure", tag("figcaption", note), scrolled(picture, "roofline"))


def _legend() -> Markup:
    names = ("pointwise", "row (norms, softmax, sums)", "matmul, convolution", "attention",
             "call of a kernel", "torch")  # fmt: skip
    items = [
        tag("li", tag("svg", tag("rect", width=12, height=12, class_=f"s{at}"),
                      viewBox="0 0 12 12", aria_hidden="true"), name)
        for at, name in enumerate(names)
    ]  # fmt: skip
    return tag("ul", *items, class_="legend")


def _graph(subject: Subject, name: str) -> Iterator[Markup]:
    yield tag("h3", "Graph")
    graph = subject.graph
    if graph is None or len(graph.groups) != len(subject.steps):
        yield paragraph("The bundle has no graph of these steps: its graph.json was deleted.")
        return
    boxes: list[Box] = []
    edges: list[tuple[int, int, str]] = []
    stored: dict[int, int] = {}  # node → box
    read = {node for group in graph.groups for node in group.reads}
    for node, line in subject.lines.items():
        if line.op == "input" and node in read:
            stored[node] = len(boxes)
            given = line.attributes.removeprefix("name=").strip("'")
            boxes.append(Box(given, line.type, f"input {given}: {line.type}", is_round=True))
    for step in subject.steps:
        group = step.group
        if group is None:
            continue
        at = len(boxes)
        place = step.places[0] if step.places else ""
        time = time_text(step.time_us) if step.time_us else ""
        detail = " · ".join(filter(None, (time, place)))
        ops = short(" ".join(line.op for line in step.lines[:TITLE_LENGTH]), TITLE_LENGTH)
        places = short("\n".join(step.places[:8]), TITLE_LENGTH)
        title = f"step {step.number}: {step.name}\n{ops}\n{places}"
        boxes.append(Box(step.name, detail, title, series(step), f"#{name}-step-{step.number}"))
        for node in group.reads:
            if node in stored:
                edges.append((stored[node], at, _type(subject, node)))
        stored |= dict.fromkeys(group.stores, at)
    for output, node in graph.outputs:
        if node in stored and not output.startswith("check"):
            boxes.append(Box(output, "output", f"output {output}", is_round=True))
            edges.append((stored[node], len(boxes) - 1, _type(subject, node)))
    picture, width = draw(boxes, list(dict.fromkeys(edges)), "fusion groups and what they read")
    yield paragraph(
        "Each box is a launch: the operations that share a kernel. Lines are buffers; weights are "
        "left out. A box leads to its operations and their lines in the model."
    )
    yield tag(
        "div",
        tag("label", "size ", tag("select", *(
            tag("option", text, value=value, selected=value == "1")
            for value, text in (("fit", "fit"), ("0.5", "50 %"), ("1", "100 %"), ("1.5", "150 %"))
        ), data_picture=f"{name}-graph", data_width=width)),
        class_="tools",
    )  # fmt: skip
    yield scrolled(picture, "graph", "graph", f"{name}-graph")


def _type(subject: Subject, node: int) -> str:
    line = subject.lines.get(node)
    return line.type if line is not None else ""


def _memory(subject: Subject) -> Iterator[Markup]:
    yield tag("h3", "Arena over time")
    plan = subject.each.plan
    if not subject.lifetimes:
        yield paragraph("No step keeps anything in the arena.")
        return
    spans = [
        Span(
            each.first,
            each.last,
            each.buffer.offset,
            each.buffer.offset + each.buffer.nbytes,
            f"{each.buffer.name}: {bytes_text(each.buffer.nbytes)} at {each.buffer.offset}, "
            f"steps {each.first} to {each.last}",
            place % 6,
        )
        for place, each in enumerate(subject.lifetimes)
    ]
    changes = [0] * (len(subject.steps) + 1)
    for each in subject.lifetimes:
        changes[each.first] += each.buffer.nbytes
        changes[each.last + 1] -= each.buffer.nbytes
    used = list(accumulate(changes))
    peak = max(used)
    whole = sum(each.buffer.nbytes for each in subject.lifetimes)
    note = (
        f"{len(subject.lifetimes)} buffers, {bytes_text(whole)} one beside the other, share "
        f"{bytes_text(plan.arena_bytes)}; most in use is {bytes_text(peak)}, in step "
        f"{used.index(peak)}. A rectangle is a buffer: when it is in use, and where it lies."
    )
    picture = timeline(
        spans, len(subject.steps), plan.arena_bytes, "arena over the steps of a call", bytes_text
    )
    yield tag("figure", tag("figcaption", note), scrolled(picture, "arena over time"))
    rows = [
        (
            each.buffer.name,
            Number(each.buffer.offset, f"{each.buffer.offset:,}"),
            bytes_cell(each.buffer.nbytes),
            each.first,
            each.last,
        )
        for each in subject.lifetimes
    ]
    heads = ("buffer", "offset", "size", "first step", "last step")
    yield folded("all buffers", table(heads, rows, "buffers"))


def _steps(subject: Subject, name: str) -> Iterator[Markup]:
    yield tag("h3", "Steps")
    yield paragraph("What a call runs, in order: operations with their lines in the model.")
    yield tag(
        "div",
        tag("label", "find ", tag("input", type="search", data_list=f"{name}-steps",
            data_count=f"{name}-count", placeholder="operation, kernel, line")),
        tag("span", f"{len(subject.steps)} shown", id=f"{name}-count", aria_live="polite"),
        class_="tools",
    )  # fmt: skip
    parts = [_step(subject, step, name) for step in subject.steps]
    yield tag("div", *parts, id=f"{name}-steps")


def _step(subject: Subject, step: Step, name: str) -> Markup:
    time = "" if step.time_us is None else f" · {time_text(step.time_us)}"
    place = f" · {step.places[0]}" if step.places else ""
    head = joined((f"{step.number}: ", tag("b", step.name), tag("span", f"{time}{place}",
                                                               class_="muted")))  # fmt: skip
    rows = [
        ("grid", " × ".join(map(str, step.grid)) or "–"),
        ("memory", " ".join(f"{space}:{value}" for space, value in step.arguments)),
    ]
    if step.bytes is not None:
        rows.append(("moved", bytes_text(step.bytes)))
    if step.operations is not None:
        rows.append(("operations", count_text(step.operations)))
    parts = [tag("p", joined((joined((f"{key} ", code(value))) for key, value in rows), " · "))]
    if step.kind == "kernel":
        parts.append(
            tag("p", link("source and alternatives", kernel_id(step, subject.each.target)))
        )
    if step.lines:
        stores = set(step.group.stores) if step.group else set()
        parts.append(source("\n".join(_line(line, line.number in stores) for line in step.lines)))
    return folded(head, *parts, id_=f"{name}-step-{step.number}")


def _line(line: Line, is_stored: bool) -> str:
    """An operation as `aotc diff` prints it: a table of them is twice as long a page."""
    place = f"  # {line.source}" if line.source else ""
    return f"%{line.number} = {line.call} : {line.type}{', stored' if is_stored else ''}{place}"
