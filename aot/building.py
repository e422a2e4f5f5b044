"""`aot.build`: a model of this process into a bundle, as `aotc build` does with one in a file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotc.aot.build_extra import require_build_extra
from aotc.aot.entry_points import EntryPoint
from aotc.aot.project import build_options

if TYPE_CHECKING:
    from aotc.aot.pipeline import BuildReport

PATHS = ("cache_folder", "record", "dump", "tasks_to", "results_from")  # which may be texts


def build(
    model: Any,
    example_inputs: Any,
    out: str | os.PathLike[str],
    *,
    targets: str | Sequence[str] = "cpu",
    dynamic_shapes: Any = None,
    state_shapes: Any = None,
    entry_points: Mapping[str, EntryPoint] | None = None,
    decompositions: Mapping[Any, Any] | None = None,
    **options: Any,
) -> BuildReport:
    """Compile a model into a bundle at `out`; returns what was made and what it cost.

    - `model`: a `torch.nn.Module`, a function, what `torch.compile` gave, or an exported program. A
      module is exported in eval mode, and afterwards trains or does not as before, with the weights
      and buffers that it had; lazy ones have the shapes of a first call.
    - `example_inputs`: a tuple of positional arguments, a dict of named ones, or one tensor; None
      with `entry_points`, and for an exported program's own.
    - `targets`: what `aotc build --target` takes, best first.
    - `dynamic_shapes`, `state_shapes`, `entry_points`, `decompositions`: what a spec file may have
      by these names (docs/dynamic.md, docs/state.md, docs/entry-points.md;
      docs/how-to/debug-a-wrong-number.md has decompositions).
    - `options`: `tune="full"`, `force=True`, `quantize="int8"` and so on: the fields of
      `aot.BuildOptions`, and `cache_dir`. What is not given is what the settings say.

    Nothing is written unless the compiled code gives the model's numbers. Raises the typed errors
    of `aotc build` (docs/reference/errors.md), and TypeError for an option that does not exist.
    """
    require_build_extra("aot.build")
    from aotc.aot.capture.quantise import own_weights_kept
    from aotc.aot.capture.spec import as_it_trains, specs_of
    from aotc.aot.pipeline import build as build_specs
    from aotc.aot.rewrites.user_rewrites import rewrites_of

    texts = {name for name in PATHS if isinstance(options.get(name), str)}
    given = options | {name: Path(options[name]) for name in texts}
    if "rewrites" in given:
        given["rewrites"] = rewrites_of(given["rewrites"])
    settled = build_options(**given)
    name = getattr(model, "__name__", type(model).__name__)
    with as_it_trains(model):
        specs = specs_of(
            model,
            example_inputs,
            name,
            dynamic_shapes,
            state_shapes,
            entry_points=entry_points,
            decompositions=decompositions or {},
        )
        wanted = [targets] if isinstance(targets, str) else targets
        with own_weights_kept(specs) if settled.quantize else nullcontext():
            return build_specs(specs, out, wanted, settled)
