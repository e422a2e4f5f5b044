"""Programs in host memory whose shapes depend on the call: one plan and session for each shape met.

A call reads the sizes from its inputs. For shapes that a session has met before it makes the same
one native call as a program of fixed shapes; for new ones it checks them, makes their plan, and
forgets those that were not used for the longest time. All shapes of a session share one arena,
which grows. Those on a device are in `dynamic_device.py`.
"""

from __future__ import annotations

import _thread
import sys
from operator import attrgetter

from ..argument_errors import SessionBusy
from ..arrays.exchange import kind_of
from ..bundle.dynamic_plan import DynamicPlan
from ..bundle.structure import Structure
from ..drivers.memory import Memory
from ..errors import ProgramClosed
from .program import Loaded, Program
from .session import Bound, Session, close_each

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..bundle.manifest import Manifest, Target, TensorSpec
    from ..bundle.signature import Size

SHAPES_KEPT = 16  # in each session
SHAPE = attrgetter("shape")
Shapes = tuple[tuple[int, ...], ...]


class DynamicProgram(Program):
    """A bundle ready to run on inputs of any shape within its ranges; see `Program`.

    dims: the sizes that a call decides, each with its name and range.
    """

    def __init__(
        self,
        manifest: Manifest,
        target: Target,
        identity: str,
        plan: DynamicPlan,
        loaded: Loaded,
        *more: Any,
    ) -> None:
        """Made by `load` only; `more` is what the next class takes."""
        self.signature = manifest.signature
        self.dims: tuple[Size, ...] = manifest.dims
        self.dynamic_plan = plan
        super().__init__(manifest, target, identity, plan, loaded, *more)  # type: ignore[arg-type]

    def session(self) -> DynamicSession:
        """A session of one's own: a thread that keeps one never meets another's arena."""
        return DynamicSession(self)

    def runner(self, shapes: Shapes) -> Callable[[list[int]], None]:
        """`run_at` for inputs of these shapes."""

        def run(addresses: list[int]) -> None:
            try:
                session = self._free.pop()
            except IndexError:
                session = self.session()
            try:
                session.at(shapes).run_at(addresses)  # type: ignore[attr-defined]
            finally:
                self._take_back(session)

        return run


class Shaped:
    """The program at given shapes: what a `Session` asks of a program.

    needs: bytes of the arena; shared: what the session shares with those of other shapes, set
    before it is made.
    """

    __slots__ = (
        "_executable",
        "_give",
        "_input_ports",
        "_output_ports",
        "_program",
        "_structure",
        "inputs",
        "needs",
        "outputs",
        "shared",
    )
    states: tuple[TensorSpec, ...] = ()  # plans of sizes keep none

    def __init__(self, program: DynamicProgram, shapes: Shapes) -> None:
        """Raises the `InputError`s of `Signature.bind`."""
        signature = program.signature
        values = signature.bind(shapes)
        plan = program.dynamic_plan.at(values[: len(signature.dims)])
        self._program = program
        self.inputs, self.outputs = signature.at(values)
        self._give = program._give
        # Arguments come in order: the session of all shapes has unfolded them.
        self._structure = Structure(None, program._structure.outputs)
        self.needs = plan.arena_bytes
        self.shared: Any = None
        loaded = program._open()
        sizes = (tuple(spec.nbytes for spec in specs) for specs in (self.inputs, self.outputs))
        self._executable = loaded.executable.at(plan, *sizes)
        ports = program._ports(loaded, self.inputs, self.outputs)
        self._input_ports, self._output_ports = ports

    @property
    def _loaded(self) -> Loaded | None:
        return self._program._loaded

    def _open(self) -> _Lent:
        return _Lent(_WithShared(self._executable, self.shared), self._program._open())


class _Lent:
    """The code at given shapes, as `Loaded` has it: with the memory of all shapes behind it."""

    __slots__ = ("executable", "release", "retain")

    def __init__(self, executable: Any, loaded: Loaded) -> None:
        self.executable = executable
        self.retain = loaded.retain
        self.release = loaded.release


class _WithShared:
    """An executable whose sessions all work in the same memory."""

    __slots__ = ("_executable", "_shared")

    def __init__(self, executable: Any, shared: Any) -> None:
        self._executable = executable
        self._shared = shared

    def session(self) -> Any:
        return self._executable.session(self._shared)


class DynamicSession(Session):
    """One caller's arena for all shapes; for one thread at a time. Called like the program."""

    __slots__ = ("_known", "_recent", "_shared")

    def __init__(self, program: DynamicProgram) -> None:
        self._turn = _thread.allocate_lock()
        loaded = program._open()
        loaded.retain()
        self._loaded: Any = loaded
        self._program: Any = program
        self._arity = -1 if program._structure.inputs else len(program.inputs)
        self._known: dict[Shapes, Session] = {}  # the one used last comes last
        self._recent: Session | None = None  # and it is this one
        self._shared: Any = None
        try:
            self._shared = self._first_shared()
        except BaseException:
            self._loaded = None
            loaded.release()
            raise

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run once; see `Program`. Raises `SessionBusy` where a call of it runs."""
        if not self._turn.acquire(False):  # of all shapes, whose memory is one
            raise SessionBusy()
        try:
            session, arrays = self._for(arrays, named)
            return session(*arrays, out=out)
        finally:
            self._turn.release()

    def bind(self, arrays: tuple[Any, ...], named: dict[str, Any], out: Any) -> Bound:
        """This session at the arrays' shapes; `Program.bind` gives it to nobody else."""
        session, arrays = self._for(arrays, named)
        bound = session.bind(arrays, {}, out)
        bound._keep = (bound._keep, self)
        return bound

    def _for(
        self, arrays: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Session, tuple[Any, ...]]:
        """The session of the arrays' shapes, and the arrays of the inputs in order."""
        if not named:  # nearly all calls: arrays that tell their shapes, and those of the last call
            try:
                session = self._known[tuple(map(SHAPE, arrays))]
            except (AttributeError, KeyError, TypeError):
                pass
            else:
                if session is self._recent:  # which refuses to run where the program is closed
                    return session, arrays
        if self._program._loaded is None or self._loaded is None:
            raise ProgramClosed()
        if named or len(arrays) != self._arity:
            arrays = tuple(self._arranged(arrays, named))
        return self.at(tuple([self._shape_of(*pair) for pair in enumerate(arrays)])), arrays

    def at(self, shapes: Shapes) -> Session:
        """The session for inputs of these shapes."""
        session = self._known.pop(shapes, None)
        if session is None:
            session = self._made(shapes)
        self._known[shapes] = self._recent = session
        return session

    def _made(self, shapes: Shapes) -> Session:
        """A session for new shapes, in place of the one whose last use is the longest ago."""
        shaped = Shaped(self._program, shapes)
        if not self._is_enough(shaped):
            self._forget()
            old = self._shared
            old.close()
            self._shared = self._no_shared()  # also where there is no room for the larger one
            self._shared = self._larger(shaped, old)
        elif len(self._known) >= SHAPES_KEPT:
            self._known.pop(next(iter(self._known))).close()
        shaped.shared = self._shared
        return self._session(shaped)

    # What differs on a device.

    def _first_shared(self) -> Any:
        """The memory of all shapes as the session opens."""
        return self._no_shared()

    def _no_shared(self) -> Any:
        """Memory that no shape fits in."""
        return Memory(0)

    def _larger(self, shaped: Shaped, old: Any) -> Any:
        """Memory in place of the old one, which a shape does not fit in."""
        return Memory(shaped.needs)

    def _is_enough(self, shaped: Shaped) -> bool:
        return shaped.needs <= int(self._shared.nbytes)

    def _session(self, shaped: Shaped) -> Session:
        return Session(shaped)

    def _shape_of(self, index: int, value: Any) -> tuple[int, ...]:
        """The shape of an argument; raises `InputUnreadable` for what is no array."""
        shape = getattr(value, "shape", None)
        if shape is None:
            port = self._program._input_ports[index]
            kind_of(port, value)
            try:
                shape = memoryview(value).shape
            except TypeError:  # DLPack alone tells a shape too late
                raise port.unreadable(value) from None
        return tuple(shape or ())

    def _forget(self) -> None:
        sessions = list(self._known.values())
        self._known.clear()
        self._recent = None
        close_each(sessions)

    def _free(self) -> None:
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            try:
                self._forget()
            finally:
                self._shared.close()
                loaded.release()

    def __del__(self) -> None:
        if not sys.is_finalizing() and getattr(self, "_loaded", None) is not None:
            self._free()
