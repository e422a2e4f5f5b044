"""What a user writes, as type checkers read it; never run. Every `ignore` is an error that has to
be found: one that is not needed is an error too."""

from collections.abc import Sequence

import typed_bundle

from aotc import runtime


def untyped(path: str, x: memoryview, y: bytearray) -> bytearray:
    """The program itself: arrays of any kind, as many as the model takes, nested as its are."""
    with runtime.load(path, threads=1) as program:
        names: Sequence[str] = [spec.name for spec in program.inputs]
        first = program(x, out=y)
        program({"pair": [x, x]}, mask=x)
        session: runtime.Session = program.session()
        session.reset()
        print(names, program["decode"](x), session.state, program.closed)
    return first


def typed(path: str, x: memoryview) -> tuple[memoryview, memoryview]:
    """The typed module: parameters and results of this bundle."""
    with typed_bundle.load(path) as program, program.session() as session:
        found = session.encode((x, x), 2.0, {"mask": x})
        hidden: memoryview = found["hidden"]
        program.encode((x, x), 2.0, {"mask": x}, out=found)
        program.encode((x, x), "2", {"mask": x})  # type: ignore[arg-type]
        program.encode((x, x), 2.0, {"mark": x})  # type: ignore[typeddict-item]
        program.decode()  # type: ignore[call-arg]
        program.decode(x, hidden)  # type: ignore[call-arg, arg-type]
        program.decodes(x)  # type: ignore[attr-defined]
        return program.decode(x)
