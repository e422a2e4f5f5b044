"""A piece as a spec that `aotc build` takes: Python source, and its values beside it if need be."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import torch

from aotc.aot.capture.eager import ATEN_NAMESPACES
from aotc.aot.reduce.piece import Piece

_FILE = '''\
"""{title}"""

{imports}


class Reduced(torch.nn.Module):
    """{count} of {total} operations."""

{parameters}{forward}


model = Reduced()
example_inputs = {inputs}
{decompositions}'''
_PARAMETERS = """\
    def __init__(self) -> None:
        super().__init__()
{registered}

"""
# Ops of the user's own are registered, and decomposed, by the file that the model came from.
_SOURCE = "SOURCE = import_code({source!r})"
_DECOMPOSITIONS = 'decompositions = getattr(SOURCE, "decompositions", {})\n'
_FORGETTING = re.compile(r";  (\w+ = )+None$", re.MULTILINE)  # FX frees values as it goes
_STORED = 'VALUES = torch.load(Path(__file__).with_suffix(".pt"), weights_only=True)'
_RANDOM = "torch.manual_seed(0)"


def write_spec(
    piece: Piece, path: Path, title: str, total: int, has_values: bool, source: str = ""
) -> None:
    """Write `path` and, with `has_values`, the recorded values beside it as `.pt`.

    Without them floats are random numbers of the same shapes and types, made when the spec is
    loaded; whole numbers and booleans are written out. total: operations of the whole model.
    source: the file or module of that model, which is imported where an op of its own is left.
    """
    values = {**piece.parameters, **piece.inputs}
    text = {name: _python_text(name, value, has_values) for name, value in values.items()}
    registered = [f'self.register_buffer("{name}", {text[name]})' for name in piece.parameters]
    parameters = _PARAMETERS.format(registered=textwrap.indent("\n".join(registered), " " * 8))
    forward = _FORGETTING.sub("", piece.module().code.strip())
    imports = ["import torch", "from torch import device, inf, nan  # the code may use them"]
    if has_values:
        imports = ["from pathlib import Path", "", *imports]
    lines = [_STORED if has_values else _RANDOM]
    needs_source = bool(source) and _has_ops_of_users(piece)
    if needs_source:
        imports += ["", "from aotc.aot.capture.user_code import import_code"]
        lines.append(_SOURCE.format(source=source))
    source_text = _FILE.format(
        title=title,
        imports="\n".join([*imports, "", *lines]),
        count=piece.operations,
        total=total,
        parameters=parameters if registered else "",
        forward=textwrap.indent(forward, " " * 4),
        inputs="(" + "".join(f"{text[name]}, " for name in piece.inputs).strip() + ")",
        decompositions=_DECOMPOSITIONS if needs_source else "",
    )
    try:
        if has_values:
            torch.save({name: value.clone() for name, value in values.items()}, _values_of(path))
        path.write_text(source_text)
    except BaseException:  # a signal too: both files or none
        path.unlink(missing_ok=True)
        _values_of(path).unlink(missing_ok=True)
        raise


def _values_of(path: Path) -> Path:
    return path.with_suffix(".pt")


def _has_ops_of_users(piece: Piece) -> bool:
    targets = (node.target for node in piece.graph.nodes)
    overloads = [each for each in targets if isinstance(each, torch._ops.OpOverload)]
    return any(each.namespace not in ATEN_NAMESPACES for each in overloads)


def _python_text(name: str, value: torch.Tensor, has_values: bool) -> str:
    if has_values:
        return f'VALUES["{name}"]'
    if value.is_floating_point():
        return f"torch.randn({tuple(value.shape)}, dtype={value.dtype})"
    return f"torch.tensor({value.tolist()}, dtype={value.dtype}).reshape({tuple(value.shape)})"
