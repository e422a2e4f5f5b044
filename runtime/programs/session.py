"""Sessions and bound calls: addresses in, one call of the driver, done."""

from __future__ import annotations

import _thread
import sys
from operator import attrgetter

from ..arrays.buffers import copy_strided
from ..arrays.complexes import is_copy
from ..arrays.dlpack import Array, Borrowed
from ..arrays.dtypes import DTYPES
from ..arrays.exchange import BUFFER, KINDS, TORCH, address_of_output, kind_of, shape_of
from ..arrays.port import ports
from ..arrays.strided import copier
from ..arrays.torch_guard import guard_of
from ..bundle.manifest import find_entry
from ..bundle.signature import NO_SIZES
from ..errors import (
    BundleMalformed,
    InputNotContiguous,
    OutputUnusable,
    ProgramClosed,
    SessionBusy,
)
from .arguments import places
from .entry import EntryFunction

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Protocol, Self

    from ..arrays.exchange import Kind
    from ..arrays.port import Port
    from ..arrays.torch_guard import Guard
    from ..bundle.manifest import TensorSpec
    from ..bundle.plan import Plan
    from ..bundle.signature import SessionSizes
    from .entry import LoadedEntry
    from .state import States

    Shapes = tuple[tuple[int, ...], ...]
    Ports = tuple[tuple[Port, ...], tuple[Port, ...]]
    Late = tuple[Port, Array, int]  # what a run has written, and where it goes

    class Code(Protocol):
        """Code and weights in memory; whoever uses them is counted."""

        executable: Any
        check: Callable[..., None]

        is_changing: bool

        def retain(self, session: Any) -> None: ...
        def release(self, user: Any) -> None: ...

    class Called(Protocol):
        """What a session asks of a program."""

        plan: Plan
        session_sizes: SessionSizes
        _entries: tuple[LoadedEntry, ...]
        _main: LoadedEntry | None

        @property
        def _loaded(self) -> object: ...
        def _at(
            self, loaded: Any, entry: LoadedEntry, values: list[int]
        ) -> tuple[Any, Ports, int]: ...
        def _open(self) -> Code: ...


SHAPE = attrgetter("shape")
# Calls until torch looks at the tensors of later ones, and until it stops where these are others.
GUARDED_FROM, MOST_MISSES = 2, 6


def refuse_copy(value: object, protocol: object) -> Any:
    """In place of `__reduce_ex__`: what holds code and memory is of one process, and there once.

    Raises `TypeError`, as Python does for what cannot be copied or pickled.
    """
    text = f"a `{type(value).__name__}` is neither copied nor pickled, expected one a process"
    raise TypeError(f"{text}: load the bundle there, `runtime.load(path)`")


class Instance:
    """A session at given shapes: the driver's session and the ports of inputs and outputs.

    on_driver: None once it is closed; last: the addresses that the driver's session holds; guard:
    torch's own check that inputs are as those of an earlier call, if there is one; misses: calls
    that were looked at without it.
    """

    __slots__ = ("guard", "inputs", "last", "misses", "on_driver", "outputs")

    def __init__(self, on_driver: Any, inputs: tuple[Port, ...], outputs: tuple[Port, ...]) -> None:
        self.on_driver = on_driver
        self.inputs = inputs
        self.outputs = outputs
        self.last: list[int] = []
        self.guard: Guard | None = None
        self.misses = 0

    def expect(self, arrays: Sequence[Any]) -> None:
        """Have torch look at all tensors of a call at once, where calls bring such as these, which
        kernels read as they lie; not where an array is of another kind, such as a drawn seed."""
        self.misses += 1
        if self.misses == GUARDED_FROM:
            if all(KINDS.get(type(e)) is TORCH and not e.requires_grad for e in arrays):
                self.guard = guard_of(arrays)
        elif self.misses == MOST_MISSES:
            self.guard = None

    def close(self) -> None:
        """Free what the driver holds for it; idempotent."""
        on_driver, self.on_driver = self.on_driver, None
        if on_driver is not None:
            on_driver.close()


class Session:
    """One caller's arena, states and addresses; called like the program.

    sizes: those of the states, by name, which it has from the beginning to its end.

    With dynamic sizes, a session reads them from the inputs. For shapes that it has met before, it
    makes the same one call of the driver as for fixed ones; for new ones it checks them, makes
    their plan, and forgets those whose last use is the longest ago. All its shapes share one arena,
    which grows, and the states. So do its entry points: `session["decode"](…)` or
    `session.decode(…)` is a call of one, in the order of all calls of the session.

    For one thread at a time: a call while another one runs raises `SessionBusy`.
    """

    __reduce_ex__ = refuse_copy
    __slots__ = ("__weakref__", "_addresses", "_all_known", "_arity", "_entry", "_inputs",
                 "_instance", "_known", "_last", "_late", "_loaded", "_main", "_on_driver",
                 "_outputs", "_program", "_run", "_shapes", "_shared", "_slots", "_turn",
                 "sizes")  # fmt: skip

    @staticmethod
    def _on(executable: Any, stream: Any) -> tuple[Any, Any, Any]:
        """Where sessions of the code run; see `DeviceSession._on`."""
        return None, None, None

    @staticmethod
    def _ports(
        executable: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
    ) -> Ports:
        """The ports of inputs and of outputs."""
        return ports(inputs, outputs, copier(executable.copy_strided))

    @classmethod
    def _of(cls, program: Called, sizes: dict[str, Any]) -> Session:
        """A session of a program; sizes: of its states, by name."""
        return cls(program, sizes)

    def __init__(self, program: Called, sizes: Mapping[str, int] = NO_SIZES) -> None:
        """sizes: of the states, by name; those that are left out are the example's.

        Raises `SessionSizeUnknown`, `SessionSizeInvalid` and what says that there is no memory.
        """
        self._loaded: Code | None = None
        of_states = program.session_sizes
        self.sizes = of_states.bind(sizes)
        specs = of_states.at(self.sizes)
        self._main = program._main
        self._entry = entry = program._main or program._entries[0]
        self._slots = program.plan.state_slots(entry.dims, self.sizes, specs)
        self._turn = _thread.allocate_lock()  # held while a call runs
        loaded = program._open()
        self._program = program
        # Arguments as they are where there are this many; nested ones never are.
        self._arity = entry.arity
        # By shapes, the one used last comes last; None where one instance serves all calls.
        entries = program._entries
        self._all_known: list[dict[Shapes, Instance]] = [{} for _ in entries]
        is_one = len(entries) == 1 and not entry.dims
        self._known: dict[Shapes, Instance] | None = None if is_one else self._all_known[0]
        self._shapes: Shapes | None = None  # those of the instance in use
        self._instance: Instance | None = None
        self._shared: Any = None  # what the instances share
        self._on_driver: Any = None
        self._last: list[int] = []  # what the driver's addresses hold
        self._late: list[Late] = []  # of this call
        self._loaded = loaded  # before it is counted: what is not counted may be released too
        try:
            loaded.retain(self)
            if self._known is None:
                self._enter(Instance(loaded.executable.session(), *entry.ports))
            else:
                self._shared = loaded.executable.shared(self._slots)
                self._open_fixed()
        except BaseException:
            Session._free(self)  # a subclass has nothing yet
            raise

    def _open_fixed(self) -> None:
        """Make the instances of entries whose sizes are fixed, so that their calls make nothing."""
        entries = self._program._entries
        fixed = [entry for entry in entries if entry.shapes is not None]
        while not all(self._all_known[entry.number] for entry in fixed):
            for entry in fixed:  # again where one has made the arena grow under the others
                self._select(entry)
                self._enter_shapes(entry.shapes or ())
        self._select(self._main or entries[0])

    def _select(self, entry: LoadedEntry) -> None:
        """Have calls be of this entry."""
        self._entry = entry
        self._arity = entry.arity
        if self._known is not None:
            self._known = self._all_known[entry.number]
            self._shapes = None

    def _enter(self, instance: Instance) -> None:
        """Have calls run on this instance."""
        if self._instance is not None:
            self._instance.last = self._last
        self._instance = instance
        self._on_driver = instance.on_driver
        self._addresses = instance.on_driver.addresses
        self._run: Callable[..., Any] = instance.on_driver.run
        self._inputs = instance.inputs
        self._outputs = instance.outputs
        self._last = instance.last

    def _shaped(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> Sequence[Any]:
        """The arrays of the inputs in order, after the session has entered their shapes."""
        fixed = self._entry.shapes
        if fixed is not None:
            if self._shapes is None:
                self._enter_shapes(fixed)
            return (
                arrays
                if not named and len(arrays) == self._arity
                else self._entry.arrange(arrays, named)
            )
        if not named:  # nearly all calls: arrays that tell their shapes, and those of the last call
            try:
                if tuple(map(SHAPE, arrays)) == self._shapes:
                    return arrays
            except Exception:  # what has no shape, or raises, is asked again with its name
                pass
        given: Sequence[Any] = arrays
        if named or len(arrays) != self._arity:
            given = self._entry.arrange(arrays, named)
        self._enter_shapes(tuple([self._shape_of(*pair) for pair in enumerate(given)]))
        return given

    def _enter_shapes(self, shapes: Shapes) -> None:
        """Have calls run on the instance for inputs of these shapes."""
        if shapes == self._shapes:
            return
        known = self._known
        assert known is not None
        instance = known.pop(shapes, None) or self._made(shapes)
        known[shapes] = instance
        self._enter(instance)
        self._shapes = shapes

    def _made(self, shapes: Shapes) -> Instance:
        """An instance for new shapes; raises the `InputError`s of `Signature.bind`."""
        program, loaded, known, shared = self._program, self._loaded, self._known, self._shared
        assert loaded is not None
        assert known is not None
        entry = self._entry
        values = entry.signature.bind(shapes, self.sizes)
        code, ports, limit = program._at(loaded, entry, values)
        plan = code.plan
        if plan.states != self._slots:
            found, expected = str(plan.states), str(self._slots)
            raise BundleMalformed(
                path=program.plan.path, field="states", found=found, expected=expected
            )
        if not shared.fits(code):
            self._forget_shapes()
            shared.grow(code)
        while len(known) >= limit:
            known.pop(next(iter(known))).close()
        return Instance(code.session(shared), *ports)

    def _forget_shapes(self) -> None:
        self._shapes = self._instance = self._on_driver = None
        instances = [instance for known in self._all_known for instance in known.values()]
        for known in self._all_known:
            known.clear()
        close_each(instances)

    def _shape_of(self, index: int, value: Any) -> tuple[int, ...]:
        """The shape of an argument; raises `InputUnreadable` for what is not an array."""
        return shape_of(self._entry.ports[0][index], value)

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run once; see `Program`. Raises `SessionBusy` where a call of it runs."""
        return self._call(self._main, arrays, out, named)

    def _call(
        self, entry: LoadedEntry | None, arrays: tuple[Any, ...], out: Any, named: dict[str, Any]
    ) -> Any:
        """One call of an entry."""
        if self._turn.locked():
            self._refuse_in_call()
        with self._turn:  # never `acquire` by itself: a signal's handler may raise behind it
            if self._program._loaded is None or self._loaded is None:
                raise self._closed()
            if entry is not self._entry:
                self._select(entry or find_entry(self._program._entries, None))
            hold: list[Any] = []  # copies of arrays that are not contiguous, alive during the call
            given: Sequence[Any] = arrays  # with a seed that the call was not given, alive as long
            if self._known is not None:
                given = self._shaped(arrays, named)
            elif named or len(arrays) != self._arity:
                given = self._entry.arrange(arrays, named)
            result = self._fill(given, out, hold)
            self._run()
            if self._late:
                write_late(self._late)
            return result

    def _refuse_in_call(self) -> None:
        """Raise `SessionBusy` where a call has the turn; where the weights change, it is waited
        for."""
        loaded = self._loaded
        if (loaded is None or not loaded.is_changing) and self._turn.locked():
            raise SessionBusy()

    def synchronize(self) -> None:
        """Wait for the work of the last call; raises what went wrong in it. On the host it is done
        when a call returns."""

    def __getitem__(self, name: str) -> EntryFunction:
        """One of its entry points; raises `EntryUnknown`."""
        return EntryFunction(self, find_entry(self._program._entries, name))

    def __getattr__(self, name: str) -> EntryFunction:
        """The same, by attribute."""
        if name[:1] != "_":
            entries = self._program._entries
            if any(entry.name == name for entry in entries):
                return EntryFunction(self, find_entry(entries, name))
        raise AttributeError(f"a session has no attribute or entry point `{name}`")

    @property
    def state(self) -> States:
        """This session's mutable state, by name; empty for most programs. Reading and writing it
        raises `ProgramClosed` once the session is closed."""
        from .state import States

        return States(self._program.session_sizes.at(self.sizes), self._driver_states, self._turn)

    def fork(self) -> Session:
        """Another session of the same sizes, whose states hold now what this one's hold: a copy,
        from which both go on by themselves. A call that runs ends first. Raises `ProgramClosed`
        and, with nothing of the copy left behind, `HostMemoryFull` or `DeviceMemoryFull`.
        """
        with self._turn:
            states = self._driver_states()
            made = self._another()
            try:
                made._driver_states().take(states)
            except BaseException:
                made.close()
                raise
        return made

    def _another(self) -> Session:
        return Session(self._program, self.sizes)

    def reset(self) -> None:
        """Give the next call the state that the bundle holds; a call that runs ends first.

        Raises `ProgramClosed`.
        """
        with self._turn:
            self._driver_states().reset()

    def _closed(self) -> ProgramClosed:
        """The error of a use after the end: of the program, or of this session alone."""
        return ProgramClosed(what="program" if self._program._loaded is None else "session")

    def _driver_states(self) -> Any:
        """The driver's states; raises `ProgramClosed`."""
        if self._loaded is None:
            raise self._closed()
        return (self._on_driver if self._shared is None else self._shared).states

    def run_at(self, addresses: list[int], shapes: Shapes = ()) -> None:
        """Run once on memory at these addresses, inputs first; for callers that checked it all.

        addresses: of the first byte of each array; shapes: those of the inputs, a tuple of ints
        each, with dynamic sizes. Raises what `Program` raises for sizes that do not fit,
        `ProgramClosed` and `SessionBusy`. Of programs of one entry. On a device it runs on the
        session's stream, else on the one that is current for torch.
        """
        if self._turn.locked():
            self._refuse_in_call()
        with self._turn:
            if self._program._loaded is None or self._loaded is None:
                raise self._closed()
            if self._known is not None:
                self._enter_shapes(shapes)
            if addresses != self._last:
                self._addresses[:] = addresses
                self._last = addresses
            self._run_here()

    def _run_here(self) -> None:
        """A call on what the driver's addresses hold."""
        self._run()

    def bind(self, *arrays: Any, out: Any = None, **named: Any) -> Bound:
        """A call of this session with fixed memory; see `Program.bind`. Other calls of the session
        may come between: the bound one then takes up its memory again."""
        return self._bind(self._main, arrays, out, named)

    def _bind(
        self, entry: LoadedEntry | None, arrays: tuple[Any, ...], out: Any, named: dict[str, Any]
    ) -> Bound:
        """A bound call of an entry. Raises `SessionBusy` where a call runs."""
        if self._turn.locked():
            self._refuse_in_call()
        with self._turn:
            if self._program._loaded is None or self._loaded is None:
                raise self._closed()
            if entry is not self._entry:
                self._select(entry or find_entry(self._program._entries, None))
            return self._bound(arrays, out, named)

    def _bound(self, arrays: tuple[Any, ...], out: Any, named: dict[str, Any]) -> Bound:
        """A bound call of the entry in use."""
        hold: list[Any] = []
        given = self._in_order(arrays, named)
        outputs = self._fill(given, out, hold)
        is_stale = any(not isinstance(each, Borrowed) for each in hold)  # a copy would be
        if is_stale or any(map(is_copy, given)):
            raise InputNotContiguous()
        late, self._late = self._late, []
        return Bound(self, lambda: self._replay(late), outputs, (given, hold))

    def _replay(self, late: list[Late]) -> Callable[[], None]:
        """What a bound call runs, of the instance in use."""
        run: Callable[[], None] = self._run
        if not late:
            return run

        def replay() -> None:
            run()
            write_late(late)

        return replay

    def _take_up(self, bound: Bound) -> None:
        """Have calls run on a bound call's memory again, as before other calls of the session."""
        if bound._entry is not self._entry:
            self._select(bound._entry)
        if self._known is not None:
            assert bound._shapes is not None
            self._enter_shapes(bound._shapes)
        addresses = list(bound._addresses)
        for index in bound._staged:
            addresses[index] = self._on_driver.stage(index)
        self._addresses[:] = addresses
        self._last = addresses

    def _fill(self, arrays: Sequence[Any], out: Any, hold: list[Any]) -> Any:
        """Write the addresses of all arrays, inputs in order; returns the outputs."""
        ports = self._inputs
        addresses: list[int] = []
        first: Kind | None = None
        if self._late:  # of a call that raised
            self._late = []
        instance: Any = self._instance
        if instance.guard is not None and instance.guard(*arrays):
            first, addresses = TORCH, [value.data_ptr() for value in arrays]
        else:
            for value in arrays:
                port = ports[len(addresses)]
                kind = KINDS.get(type(value)) or kind_of(port, value)
                addresses.append(kind.address(port, value, hold))
                if first is None:
                    first = kind
            if first is TORCH and not hold and instance.misses < MOST_MISSES:
                instance.expect(arrays)
        if out is None:
            result = self._make(first or BUFFER, addresses)
        else:
            result = out
            self._take_outputs(out, addresses)
        if addresses != self._last:  # a caller that keeps its arrays pays for this once
            if out is not None:  # fresh outputs meet nothing
                refuse_overlap(ports, self._outputs, addresses)
            self._addresses[:] = addresses
            self._last = addresses
        return result

    def _in_order(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> Sequence[Any]:
        """The arrays of the inputs in order; a session of any shapes has entered theirs."""
        if self._known is not None:
            return self._shaped(arrays, named)
        if named or len(arrays) != self._arity:
            return self._entry.arrange(arrays, named)
        return arrays

    def _make(self, kind: Kind, addresses: list[int]) -> Any:
        """Fresh outputs of a kind, nested as the model's are; appends their addresses."""
        values = []
        for port in self._outputs:
            try:
                value, address = kind.make(port)
                if port.order is not None and kind is BUFFER:
                    address = self.write_later(port, address)
            except MemoryError as error:
                raise port.no_memory() from error
            values.append(value)
            addresses.append(address)
        return self._entry.give(values)

    def write_later(self, port: Port, address: int) -> int:
        """Have the output of a port, whose dims lie in another order, written into contiguous host
        memory after the run; the address that the run writes to."""
        array = Array(port.dtype, port.shape)
        self._late.append((port, array, address))
        return array.address

    def _take_outputs(self, out: Any, addresses: list[int]) -> Sequence[Any]:
        """Append the addresses of the caller's outputs; returns these in order."""
        ports = self._outputs
        values = places(self._entry.structure.outputs, self._entry.outputs, out, True)
        for index, value in enumerate(values):
            port = ports[index]
            kind = KINDS.get(type(value)) or kind_of(port, value)
            addresses.append(
                kind.output(port, value)
                if port.order is None
                else address_of_output(kind, port, value, self)
            )
        return values

    def close(self) -> None:
        """Free the arena, once a call that runs has ended; may be called again."""
        with self._turn:
            self._free()

    def _free(self) -> None:
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            instance = self._instance
            try:
                self._forget_shapes()
                if instance is not None:
                    instance.close()
            finally:
                try:
                    if self._shared is not None:
                        self._shared.close()
                finally:
                    loaded.release(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Nobody is in a call; a child of fork may find the turn taken by a thread that it has not.
        if not sys.is_finalizing() and getattr(self, "_loaded", None) is not None:
            self._free()


class Bound:
    """A call with fixed memory: `bound()` runs it and returns `bound.outputs`.

    It keeps its arrays alive. Two threads that call it at once take turns.
    """

    __reduce_ex__ = refuse_copy
    __slots__ = ("_addresses", "_entry", "_keep", "_program", "_replay", "_run", "_session",
                 "_shapes", "_staged", "_turn", "outputs")  # fmt: skip

    def __init__(
        self,
        session: Session,
        replay: Callable[[], Callable[[], Any]],
        outputs: Any,
        keep: Any,
        staged: tuple[int, ...] = (),
    ) -> None:
        """Made by `bind` only. replay: gives what runs, of the session's instance in use; staged:
        numbers of the arrays that lie in memory of the session's own."""
        self.outputs: Any = outputs
        self._keep = keep
        self._program = session._program
        self._session = session
        self._entry = session._entry
        self._shapes = session._shapes
        self._addresses = session._last
        self._staged = staged
        self._replay = replay
        self._run = replay()
        self._turn = session._turn

    def __call__(self) -> Any:
        """Run on the bound memory. Raises `ProgramClosed`."""
        session = self._session
        with self._turn:
            if self._program._loaded is None or session._loaded is None:
                raise session._closed()
            if session._last is not self._addresses:  # other calls came between
                session._take_up(self)
                self._addresses = session._last
                self._run = self._replay()
            self._run()
        return self.outputs

    @property
    def state(self) -> States:
        """Its states; see `Session.state`."""
        return self._session.state

    def reset(self) -> None:
        """Give the next call the state that the bundle holds."""
        self._session.reset()

    def close(self) -> None:
        """Free its arena and let go of its arrays; may be called again. `outputs` stay."""
        self._session.close()
        self._keep = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_late(late: list[Late]) -> None:
    """Write outputs, whose dims lie in another order, into the contiguous memory of buffers."""
    for port, array, address in late:
        if port.nbytes:
            itemsize = DTYPES[port.dtype].itemsize_bytes
            strides = tuple([itemsize * each for each in port.strides or ()])
            copy_strided(address, array.address, itemsize, port.shape, strides)


def close_each(sessions: list[Any]) -> None:
    """Close and take out all of them; raises the first error after the last one is closed."""
    first: BaseException | None = None
    while sessions:
        try:
            session = sessions.pop()
        except IndexError:  # another thread took the last one
            break
        try:
            session.close()
        except Exception as error:
            first = first or error
    if first is not None:
        raise first


def refuse_overlap(
    inputs: tuple[Port, ...], outputs: tuple[Port, ...], addresses: Sequence[int]
) -> None:
    """Raise `OutputUnusable` where an output shares memory with another array.

    Kernels read inputs after they began to write outputs, so the two must not meet.
    """
    ports = inputs + outputs
    spans = sorted(
        (start, start + port.nbytes, port.index)
        for start, port in zip(addresses, ports, strict=True)
        if port.nbytes
    )
    furthest = furthest_output = (0, 0)  # the end reached so far, and the index of whose it is
    for start, end, index in spans:
        is_output = index >= len(inputs)
        reached, other = furthest if is_output else furthest_output
        if start < reached:
            early, late = ports[min(index, other)], ports[max(index, other)]
            raise OutputUnusable(
                role="output",
                name=late.name,
                found=f"in the memory of {early.role} `{early.name}`",
                expected="memory of its own",
            )
        furthest = max(furthest, (end, index))
        if is_output:
            furthest_output = max(furthest_output, (end, index))
