"""What a driver is: the names of its module, of its loaded code and of a session, with types.

Imported for types only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..bundle.native_plan import NativeLaunch
from ..bundle.plan import LaunchPlan, Plan, StateSlot

Missing = tuple[str, str, str, str, str]  # code, field, found, expected, hint of a mismatch


class BoundStep(Protocol):
    """A native step of a plan with the function that it calls."""

    launch: NativeLaunch
    layout: Any  # where in its frame the parts lie
    nbytes: int  # of its frame
    needed_bytes: int  # of the workspace of one tile

    def write(self, base: int, failed: int, number: int, threads: int, state: int) -> None:
        """Write the frame at `base` but for its tensors' memory."""

    def state(self) -> int:
        """The library's state on the device."""


class Natives(Protocol):
    """The functions that native steps call, and what sessions make of them; see
    `backends/steps.py`."""

    step: Any  # of a bound step, one between the graphs of a device

    def bound(self, step: Any, device: tuple[str, int] = ...) -> BoundStep | None:
        """The function of a native step; None for other steps."""

    def guarded(
        self, execute: Callable[[], None], failed: int, bound: list[tuple[Any, int]]
    ) -> Callable[[], None]:
        """A run that stops at a function which fails."""


class Session(Protocol):
    """The memory of one call at a time."""

    addresses: Any  # a ctypes array, inputs first, then outputs, which the caller fills
    states: Any  # mutable state
    run: Any  # runs the plan on `addresses`; on a device it takes a stream and is asynchronous

    def close(self) -> None:
        """Free the memory."""


class Executable(Protocol):
    """The loaded code of one target with its plan; shared by sessions, also between threads."""

    threads: int  # of the host, in use
    steps_kept: int  # of all shapes that a session keeps

    def at(self, plan: LaunchPlan, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Any:
        """The same code with the plan of a call's sizes, and the bytes of its arrays."""

    def session(self, shared: Any = None) -> Any:
        """A `Session` with memory of its own, or with what those of other shapes share."""

    def shared(self, states: Sequence[StateSlot] | None = None) -> Any:
        """The arena and the states of all shapes of a caller, those of the plan where none are
        given. `fits(code)` says whether an
        executable's plan has room there, `grow(code)` makes room, once the sessions that use the
        old arena are closed."""

    def close(self) -> None:
        """Unload the code, after its sessions."""


class Driver(Protocol):
    """The module of one device family."""

    @property
    def DEVICE(self) -> str:
        """What DLPack calls the place where the arrays of a call lie."""

    @property
    def HAS_DEVICE_MEMORY(self) -> bool:
        """Whether code and arrays lie in memory of its own: a library is then a row of images, and
        a call has a stream."""

    @property
    def LIBRARY_NAME(self) -> str:
        """A library's file in a bundle."""

    def features(self) -> frozenset[str]:
        """What this machine's device runs, in the words of a manifest's `needs`; never raises."""

    def missing(self, needs: Sequence[str], device: int = 0, ranks: int = 1) -> list[Missing]:
        """Why a target with these needs does not run on `ranks` devices here; empty where it
        does."""

    def describe(self) -> list[tuple[int, str, str, int]]:
        """(ordinal, name, architecture, bytes of memory) of every device; none for the host."""

    def group(self, ranks: int) -> Callable[..., Any]:
        """`Executable` of a program that is split over so many devices."""

    def Executable(
        self,
        library: bytes,
        plan: Plan | LaunchPlan,
        weights: Mapping[str, tuple[int, int]],
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        device: int = 0,
        threads: int = 0,
        natives: Natives | None = None,
        fallback: Any = None,
    ) -> Any:
        """Load `library`, whose digest was checked: a shared object, or the kernels' images.

        weights: (address, bytes) by name; host memory that stays valid, on a device until this
        returns. inputs, outputs: bytes of each array. device: its number. threads: the caller's
        wish or 0. natives: `Natives` of the functions that native steps call, or None; fallback
        makes the steps that torch runs (`Fallback.step`).
        """
