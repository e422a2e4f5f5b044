"""Loaded bundles: `Program` is what `load` returns, `Session` serves one thread, `Bound` one call.

    load: directory → manifest → fits this machine? → digests → plan → driver → Program

A call fills the addresses of inputs and outputs and makes one call into the driver. Nothing is
compiled, measured or written here. Which session serves a call is the policy of a `Pool`; a session
holds the shapes that it has met (`session.py`). What differs on a device is its sessions
(`device.py`).
"""

from __future__ import annotations

import _thread
import _weakref
import sys

from ..bundle.manifest import find_entry, main_entry
from ..bundle.signature import NO_SIZES
from ..errors import ProgramClosed, StateBusy
from ..settings import wait_s
from .arguments import places
from .entry import EntryFunction, EntryFunctions, LoadedEntry
from .session import Bound as Bound
from .session import Session, close_each, refuse_copy

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Self, TypeVar, overload

    from ..bundle.manifest import Manifest, Target, TensorSpec
    from ..bundle.plan import LaunchPlan, Plan
    from ..bundle.signature import Dim
    from ..bundle.signature import Signature as BundleSignature
    from ..bundle.weights import MappedFile
    from .fallback import Fallback
    from .session import Ports, Session, Shapes
    from .state import States
    from .statistics import Statistics, Stats
    from .weights import Weights

    Signature = tuple[Sequence[TensorSpec], Sequence[TensorSpec]]
    Out = TypeVar("Out")  # the caller's own arrays, which a call writes and returns


SHAPES_KEPT = 4096  # in each session, and at least LEAST_SHAPES_KEPT
LEAST_SHAPES_KEPT = 16
STEPS_BESIDE = 8  # what a shape takes beside its steps, in steps


class Pool:
    """Sessions that calls borrow; another one is made where none is free: any free session serves a
    call, and threads never share one.

    `take` gives the session of a call, `give` has it back; `idle` are those in which no call runs.
    turn: what calls hold meanwhile, where threads take turns. A call may end at any point, by a
    signal's handler that raises: a session that is not given back is one less, and no more.
    """

    turn: Any = None

    def __init__(self, make: Callable[[], Session]) -> None:
        """The first session is made now, so that a machine with too little memory says so."""
        self._make = make
        self._free: list[Session] = [make()]

    def take(self) -> Session:
        """A session that nobody else uses."""
        try:
            return self._free.pop()  # one atomic step, so that threads never share a session
        except IndexError:
            return self._make()

    def give(self, session: Session) -> None:
        """Have a session back."""
        self._free.append(session)

    def idle(self) -> list[Session]:
        """The sessions in which no call runs."""
        return list(self._free)

    def close(self) -> None:
        """Close what is idle; a call that runs is followed by another `close`."""
        # By name and not by dropping references: a caught error's traceback may hold some.
        close_each(self._free)


class Turns(Pool):
    """One session for all threads, so that no call allocates memory of its own."""

    def __init__(self, make: Callable[[], Session]) -> None:
        self.turn = _thread.RLock()  # a finalizer may call the program inside a call
        super().__init__(make)

    def idle(self) -> list[Session]:
        with self.turn:
            return super().idle()


class Slot:
    """A thread's session, None once it is closed; it goes with the thread.

    is_calling: whether a call of the thread took it and has not given it back.
    """

    __slots__ = ("__weakref__", "is_calling", "session")

    def __init__(self) -> None:
        self.session: Session | None = None
        self.is_calling = False

    def is_busy(self) -> bool:
        """Whether a call of the thread runs. What ends one, such as a signal's handler that raises,
        may keep it from giving the session back; then nobody has the session's turn."""
        session = self.session
        return session is not None and self.is_calling and session._turn.locked()


class PerThread(Pool):
    """A session for each thread that calls. What one keeps, its own thread finds again: it stays in
    its slot while a call runs."""

    def __init__(self, make: Callable[[], Session]) -> None:
        self._local = _thread._local()
        self._slots: list[_weakref.ReferenceType[Slot]] = []
        super().__init__(make)
        self.slot()

    def slot(self) -> Slot:
        """The calling thread's."""
        found: Slot | None = getattr(self._local, "slot", None)
        if found is None:
            made = Slot()
            made.session = self._free.pop() if self._free else self._make()
            self._slots[:] = [each for each in self._slots if each() is not None]
            self._slots.append(_weakref.ref(made))
            found = self._local.slot = made
        return found

    def take(self) -> Session:
        """The calling thread's; raises `StateBusy` inside of a call."""
        slot = self.slot()
        session = self._there(slot)
        slot.is_calling = True
        return session

    def give(self, session: Session) -> None:
        self.slot().is_calling = False

    def idle(self) -> list[Session]:
        return [self._there(self.slot())]

    def _there(self, slot: Slot) -> Session:
        session = slot.session
        if session is None:
            raise ProgramClosed(what="program")
        if slot.is_busy():
            raise StateBusy()
        return session

    def close(self) -> None:
        slots = [slot for reference in self._slots if (slot := reference()) is not None]
        found = []
        for slot in slots:
            if not slot.is_busy():
                session, slot.session = slot.session, None
                found += [session] if session is not None else []
        try:
            super().close()
        finally:
            close_each(found)


class Loaded:
    """Code and weights in memory, unloaded when program and sessions have all released it.

    They are counted, since references to it may live longer: in the frames of a caught error's
    traceback, or of a memory checker. weights: the mapped file, where the code reads it in place;
    file: the mapped file wherever the code reads it from, spans: its tensors, (address, bytes) by
    name; is_changing: whether the weights are about to be others; fallback: the ops that torch
    runs, where there are any; check: holds the plan of a call's shapes against the bundle.
    """

    __slots__ = ("_ended", "_lock", "_making", "_sessions", "_users", "check", "executable",
                 "fallback", "file", "is_changing", "spans", "weights")  # fmt: skip

    def __init__(
        self,
        executable: Any,
        weights: MappedFile | None,
        fallback: Fallback | None,
        check: Callable[[LaunchPlan, Signature], None],
        file: MappedFile | None = None,
        spans: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        self.file = file
        self.spans = spans or {}
        self.is_changing = False
        self._sessions: set[_weakref.ReferenceType[Session]] = set()
        self._making = _thread.allocate_lock()  # held while weights are exchanged
        self.executable = executable
        self.weights = weights
        self.fallback = fallback
        self.check = check
        self._users = {id(self)}  # the program, and what it is counted by
        # The garbage collector may end a session of this thread while the thread is in here.
        self._lock = _thread.RLock()
        self._ended = _thread.allocate_lock()  # held while there are users
        self._ended.acquire()

    def retain(self, session: Session) -> None:
        """Count a session; raises `ProgramClosed` where the code is unloaded."""
        with self._making:
            self._count(session)
            self._sessions.add(_weakref.ref(session, self._sessions.discard))

    def _count(self, user: object) -> None:
        with self._lock:
            if not self._users:
                raise ProgramClosed(what="program")
            self._users.add(id(user))

    def exchange(self, put: Callable[[], None]) -> None:
        """Have `put` make the weights others, at the same addresses, between two calls of each
        session."""
        from .turns import FORKS, holding

        user = object()
        try:
            self._count(user)
            with FORKS, self._making:
                sessions = self.sessions()

                def put_between() -> None:
                    for session in sessions:
                        session.synchronize()
                    put()

                try:
                    self.is_changing = True
                    holding([session._turn for session in sessions], put_between)
                finally:
                    self.is_changing = False
        finally:
            self.release(user)

    def release(self, user: object | None = None) -> None:
        """Count a session, or for None the program, no longer; the last one unloads the code. What
        is not counted changes nothing."""
        number = id(self if user is None else user)
        with self._lock:
            is_last = self._users == {number}
            self._users.discard(number)
            if is_last:
                try:
                    self.executable.close()
                finally:
                    self._ended.release()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until program and sessions have released it, for None without end; whether they
        have."""
        has_ended = self._ended.acquire(True, wait_s("timeout_s", timeout_s))
        if has_ended:
            self._ended.release()
        return has_ended

    def sessions(self) -> list[Session]:
        """Those that use it."""
        return [session for each in list(self._sessions) if (session := each()) is not None]

    def __del__(self) -> None:
        # At the interpreter's end the process goes away, and so may what closing needs.
        if not sys.is_finalizing() and hasattr(self, "executable"):
            self.executable.close()


class Program:
    """A bundle ready to run; safe to call from several threads at once.

    inputs, outputs, states: tuples of `TensorSpec` (name, dtype, shape, order); dims: the dynamic
    sizes, each with its name and range; target: name of the target in use; device: where it
    runs, `cpu` or `cuda:0`; digest: hex SHA-256 of the bundle; threads: host threads that share
    the work of one call; of a device also ordinal, its number, and memory, for outputs.

    Calling it takes arrays in the order of `inputs` or by name, as torch tensors, numpy arrays,
    DLPack producers or plain buffers, nested as the model took them or as one flat list. Those that
    do not lie as their spec says are copied. The
    outputs are new arrays of the kind of the first input, nested as the model gave them: one array,
    a tuple, a dict, a record by name. `out=` gives the arrays to write to instead. Each output has
    memory of its own, also where the model gives an input back or one tensor twice. Raises the
    `InputError` family.

    Where it keeps states, a call continues where the last one of the same thread ended; a session
    of one's own starts with the bundle's values. `state` and `reset` are those of the thread.

    On a device calls are asynchronous, in the order of a stream: on `stream=` where one is given
    (to the call, to `session` or to `load`), else on torch's current stream where torch runs CUDA
    in this process, else on the legacy default stream. Inputs may lie on the device or in host
    memory, which is copied; where the first input is a host array, the call waits for its outputs.
    Nothing overwrites them later. Threads that call the program take turns at its one session, so
    that no call allocates an arena; `session()` gives a thread one of its own. An input of the name
    `out` or `stream` is given by position.
    """

    __reduce_ex__ = refuse_copy

    def __init__(
        self,
        manifest: Manifest,
        target: Target,
        digest: str,
        plan: Plan,
        loaded: Loaded,
        kind: type[Session] = Session,
        stream: Any = None,
        statistics: Statistics | None = None,
    ) -> None:
        """Made by `load` only. kind: of sessions; stream: of all of them; statistics: what calls
        are counted in, where they are."""
        if statistics is not None:
            from .statistics import counting

            kind = counting(kind)
        self._statistics = statistics
        self.manifest = manifest
        self.states: tuple[TensorSpec, ...] = manifest.states
        self.session_sizes = manifest.session
        self.target: str = target.name
        self._kind = kind
        self.device: str = target.device
        ordinal, memory, self._stream = kind._on(loaded.executable, stream)
        self._is_host = ordinal is None
        if not self._is_host:
            self.ordinal, self.memory = ordinal, memory
            self.device = f"{target.device}:{ordinal}"
        self.digest = digest
        self.plan = plan
        self._fallback = loaded.fallback
        self.refit: Mapping[str, bytes] = {}  # files of the weights program, by `load`
        self._entries = tuple(
            LoadedEntry(number, row, kind._ports(loaded.executable, row.inputs, row.outputs))
            for number, row in enumerate(manifest.entries)
        )
        self._main = main_entry(self._entries)
        self._loaded: Loaded | None = loaded
        self._shapes: dict[tuple[int, ...], tuple[Any, Ports, int]] = {}
        self._owned = [loaded]  # until `close`, which takes it out in one atomic step
        policy = PerThread if manifest.states else Pool if self._is_host else Turns
        self._sessions: Pool = policy(self.session)
        self.threads: int = loaded.executable.threads

    def _at(self, loaded: Loaded, entry: LoadedEntry, values: list[int]) -> tuple[Any, Ports, int]:
        """For a call of an entry at these sizes, as `Signature.bind` gives them: the code with its
        plan, the ports, and how many such shapes a session keeps. What one session has met, all
        know.

        Raises `SizeInvalid` and `BundleMalformed`.
        """
        key, known = (entry.number, *values), self._shapes
        found = known.get(key)
        if found is None:
            signature = entry.signature
            plan = self.plan.at(values[: len(signature.dims)], entry.number)
            shaped = signature.at(values)
            loaded.check(plan, shaped)
            nbytes = (tuple(spec.nbytes for spec in specs) for specs in shaped)
            code = loaded.executable.at(plan, *nbytes)
            rows = plan.step_count + STEPS_BESIDE
            limit = max(LEAST_SHAPES_KEPT, min(SHAPES_KEPT, code.steps_kept // rows))
            found = code, self._kind._ports(loaded.executable, *shaped), limit
            for oldest in list(known)[: max(0, len(known) + 1 - limit)]:
                known.pop(oldest, None)  # another thread may have been here
            known[key] = found
        return found

    @property
    def entries(self) -> EntryFunctions:
        """The entry points by name."""
        return EntryFunctions(self, self._entries)

    def entry(self, name: str | None = None) -> EntryFunction:
        """An entry point by name, for None the one that a call of the program itself runs.

        Raises `EntryUnknown` and `EntryNotNamed`.
        """
        return EntryFunction(self, find_entry(self._entries, name))

    def __getitem__(self, name: str) -> EntryFunction:
        """One of the entry points; raises `EntryUnknown`."""
        return self.entry(name)

    def __getattr__(self, name: str) -> EntryFunction:
        """The same, by attribute."""
        if name[:1] != "_" and any(entry.name == name for entry in self._entries):
            return self[name]
        known = ", ".join(f"`{entry.name}`" for entry in self._entries)
        text = f"a program has no attribute or entry point `{name}`, its entry points are: {known}"
        raise AttributeError(text, name=name, obj=self)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of each input; raises `EntryNotNamed`."""
        return find_entry(self._entries, None).inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of each output; raises `EntryNotNamed`."""
        return find_entry(self._entries, None).outputs

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The dynamic sizes, each with its name and range; raises `EntryNotNamed`."""
        return find_entry(self._entries, None).dims

    @property
    def signature(self) -> BundleSignature:
        """Inputs and outputs with what their sizes obey; raises `EntryNotNamed`."""
        return find_entry(self._entries, None).signature

    if TYPE_CHECKING:

        @overload
        def __call__(self, *arrays: Any, out: None = None, **arguments: Any) -> Any: ...

        @overload
        def __call__(self, *arrays: Any, out: Out, **arguments: Any) -> Out: ...

    def __call__(self, *arrays: Any, out: Any = None, **arguments: Any) -> Any:
        """Run once; see the class."""
        return self._call(self._main, arrays, out, arguments)

    def _call(
        self,
        entry: LoadedEntry | None,
        arrays: tuple[Any, ...],
        out: Any,
        arguments: dict[str, Any],
    ) -> Any:
        """One call of an entry."""
        turn = self._sessions.turn
        if turn is None:
            return self._call_one(entry, arrays, out, arguments)
        with turn:
            return self._call_one(entry, arrays, out, arguments)

    def _call_one(
        self,
        entry: LoadedEntry | None,
        arrays: tuple[Any, ...],
        out: Any,
        arguments: dict[str, Any],
    ) -> Any:
        """The same, in its turn."""
        sessions = self._sessions
        session = sessions.take()
        try:
            return session._call(entry, arrays, out, arguments)
        finally:
            sessions.give(session)
            if not self._owned:  # closed meanwhile
                sessions.close()

    def run_at(self, addresses: list[int], shapes: Shapes = ()) -> None:
        """Run once on memory at these addresses: inputs, then outputs, in the order and with the
        dtypes and orders of memory of `inputs` and `outputs`.

        addresses: of the first byte of each; shapes: those of the inputs, a tuple of ints each,
        with dynamic sizes, which are checked. Nothing else is: for callers that know their arrays,
        such as a graph's guards. Raises `ProgramClosed` and, for shapes, `InputError`s.
        """
        turn = self._sessions.turn
        if turn is None:
            return self._run_one(addresses, shapes)
        with turn:
            return self._run_one(addresses, shapes)

    def _run_one(self, addresses: list[int], shapes: Shapes) -> None:
        """The same, in its turn."""
        sessions = self._sessions
        session = sessions.take()
        try:
            session.run_at(addresses, shapes)
        finally:
            sessions.give(session)
            if not self._owned:
                sessions.close()

    def record_at(
        self, addresses: list[int], take: Callable[[int], int], shapes: Shapes = ()
    ) -> None:
        """What `run_at` does, on a CUDA device while torch's current stream is recorded as a graph.

        take: gives device memory of so many bytes for what lies between inputs and outputs, which
        belongs to the recorded graph. The program must stay open for as long as that is replayed.
        Raises what `run_at` raises, and `DriverFault` for programs with states or checks.
        """
        loaded = self._open()
        entry = find_entry(self._entries, None)
        code = loaded.executable
        if entry.signature.dims:
            code, _, _ = self._at(loaded, entry, entry.signature.bind(shapes, NO_SIZES))
        code.record(addresses, take)

    def _default(self) -> Session:
        """The calling thread's session; else a new one, which nothing holds."""
        self._open()
        found = self._sessions.idle()
        return found[0] if found else self.session()

    @property
    def state(self) -> States:
        """The states of the calling thread's calls; see `Session.state`."""
        return self._default().state

    def reset(self) -> None:
        """Give the calling thread's calls the initial state again."""
        self._default().reset()

    def session(self, **sizes: Any) -> Session:
        """A session of one's own: a thread that keeps one never meets another's arena.

        sizes: of its states, ints by name; those that are left out are the example's; on a device
        also `stream`, for all of its calls. Raises `SessionSizeUnknown`, `SessionSizeInvalid`,
        `ProgramClosed` and, where memory does not suffice, `DriverFault`s (`HostMemoryFull` for the
        states, `DeviceMemoryFull`).
        """
        if not self._owned:  # closed, or it takes no new calls
            raise ProgramClosed(what="program")
        return self._kind._of(self, sizes)

    def bind(self, *arrays: Any, out: Any = None, **arguments: Any) -> Bound:
        """Fix the memory of inputs and outputs: the result is called without arguments.

        Each call reads what is then in the arrays given here and writes the same outputs. Raises
        `InputNotContiguous` for an array that a call would have to copy, since it would go stale
        (a complex tensor that torch conjugates by a mark is one), and what a call raises for arrays
        that do not fit.
        """
        return self._bind(self._main, arrays, out, arguments)

    def _bind(
        self,
        entry: LoadedEntry | None,
        arrays: tuple[Any, ...],
        out: Any,
        arguments: dict[str, Any],
    ) -> Bound:
        """A bound call of an entry, with a session of its own."""
        return self.session()._bind(entry, arrays, out, arguments)

    def load_weights(self, source: Any) -> None:
        """Run on other weights from now on: those of a safetensors file, of a folder of such files
        or of their index, or of a mapping of names to arrays.

        Names are the model's own, of parameters and buffers. What the bundle stores in another form
        is computed by the bundle's own code, so that outputs are those of a build with these
        weights. Calls that run end on the old ones, states stay; on any error nothing has changed.
        Raises `WeightsMismatch`, which lists the names, `WeightsUnreadable`,
        `WeightsNotReplaceable`, `MemoryFull`.
        """
        from .weights import require

        loaded = require(self._loaded)
        self._weights.load(source, loaded)

    def apply_lora(self, path: str | os.PathLike[str], scale: float = 1.0) -> None:
        """Add a LoRA adapter to the weights that the program has, from a folder as PEFT writes it.

        scale: a factor beside the adapter's own. Adapters add up; `reset_weights` removes them all.
        The bundle has to be built with `--adapters`. Raises `AdapterMismatch`, which names the
        modules, and what `load_weights` raises; on any error nothing has changed.
        """
        from .weights import require

        loaded = require(self._loaded)
        self._weights.apply(path, scale, loaded)

    def reset_weights(self) -> None:
        """Run on the bundle's own weights from now on; raises `WeightsNotReplaceable`."""
        from .weights import require

        loaded = require(self._loaded)
        self._weights.reset(loaded)

    @property
    def _weights(self) -> Weights:
        found: Weights | None = vars(self).get("_changing")
        if found is None:
            from .weights import Weights

            made = Weights(self.refit, self.digest[:12])
            found = vars(self).setdefault("_changing", made)  # of two threads one's, for both
        return found

    def flatten(self, result: Any) -> tuple[Any, ...]:
        """The arrays of a call's result in the order of `outputs`; raises `OutputStructure`."""
        entry = find_entry(self._entries, None)
        return tuple(places(entry.structure.outputs, entry.outputs, result))

    @property
    def fallback_calls(self) -> dict[str, int]:
        """How often torch ran each op that the bundle leaves to it, over all calls so far; empty
        where all ops are compiled."""
        return {} if self._fallback is None else self._fallback.calls()

    def stats(self) -> Stats:
        """What the program has done and holds; calls, errors and latencies where it was loaded
        with `stats=True` or under `AOTC_STATS=1`."""
        from .statistics import stats_of

        return stats_of(self)

    def close(self) -> None:
        """End the program and free its memory; may be called again.

        Calls that run in other threads finish. Sessions and bound calls that the caller made
        refuse to run from now on; code and weights go with the last of them that is closed. Outputs
        stay.
        """
        self._loaded = None
        try:
            self._retire()
        finally:
            if not self._is_host:  # the old one goes with the last output
                self.memory = type(self.memory)(self.ordinal)

    def drain(self, timeout_s: float | None = None) -> bool:
        """Take no new calls, wait until the calls that run have ended and the sessions and bound
        calls of the callers are closed, then close.

        timeout_s: the longest wait in seconds, None for no limit. Returns whether all ended in
        time; those that had not refuse to run from then on, as after `close`. A new call raises
        `ProgramClosed`; sessions that are open go on.
        """
        wait_s("timeout_s", timeout_s)  # what is none changes nothing
        loaded = self._loaded
        try:
            self._retire()
            return loaded is None or loaded.wait(timeout_s)
        finally:
            self.close()

    def _retire(self) -> None:
        """Give up code and weights, which sessions in use go on with; may be called again."""
        try:
            owned = self._owned.pop()
        except IndexError:
            owned = None
        # A call that ends after this closes its session itself.
        try:
            self._sessions.close()
        finally:
            if owned is not None:
                owned.release()

    def synchronize(self) -> None:
        """Wait for the work of the program's own session, with states that of the calling thread;
        raises what went wrong in it."""
        for session in self._sessions.idle():
            session.synchronize()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._loaded is None

    def _open(self) -> Loaded:
        """Code and weights; raises `ProgramClosed`."""
        loaded = self._loaded
        if loaded is None:
            raise ProgramClosed(what="program")
        return loaded

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._main is None:
            return f"<aotc program {', '.join(self.entries)} on {self.target}>"
        inputs = ", ".join(f"{spec.name}: {spec}" for spec in self.inputs)
        outputs = ", ".join(f"{spec.name}: {spec}" for spec in self.outputs)
        return f"<aotc program ({inputs}) -> ({outputs}) on {self.target}>"
