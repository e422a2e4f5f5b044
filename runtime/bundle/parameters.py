"""`refit/weights.msgpack`: the model's parameters by their names, and what a bundle makes of them.

A bundle stores some parameters as the model has them, and others packed, joined or folded. The
weights program computes these: its inputs are parameters, its outputs tensors of the weights file.
It is code for the CPU, whatever the targets of the bundle are.
"""

from __future__ import annotations

from ..arrays.dtypes import DTYPES, bytes_of
from ..record import Record, field
from .canonical import Limits, decode, encode
from .manifest import REFIT_FOLDER
from .schema import (
    DIGEST,
    FILE_NAME,
    Choice,
    Fields,
    Integer,
    List,
    Optional,
    Text,
    read,
    refuse,
    twins,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .schema import Broken

PARAMETERS_NAME = f"{REFIT_FOLDER}weights.msgpack"
NAME = Text(256)
COUNT_LIMIT = 1 << 16
LIMITS = Limits(file_bytes=64 << 20, values=1 << 21, depth=16, text_bytes=1 << 16)


class Parameter(Record):
    """A tensor of the model that may be given anew: all its names, element type and shape.

    stored: the tensor of the weights file that holds it as it is, empty where none does.
    """

    names: tuple[str, ...] = field(List(NAME, limit=4096, least=1))
    dtype: str = field(Choice(*DTYPES))
    shape: tuple[int, ...] = field(List(Integer(0, 1 << 40), limit=64))
    stored: str = field(Text(256, least=0))

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return bytes_of(self.dtype, self.shape)


class FixedTensor(Record):
    """A tensor of the model that the program depends on: its name and the SHA-256 of its bytes."""

    name: str = field(NAME)
    sha256: bytes = field(DIGEST)


class WeightsCode(Record):
    """The weights program: files of plan and library, the instruction sets that it needs, the
    parameters that are its inputs, by number, and the tensors that are its outputs; reads: for each
    output the parameters that it depends on."""

    plan: str = field(FILE_NAME)
    library: str = field(FILE_NAME)
    needs: tuple[str, ...] = field(List(NAME, limit=256))
    inputs: tuple[int, ...] = field(List(Integer(0, COUNT_LIMIT), limit=COUNT_LIMIT))
    outputs: tuple[str, ...] = field(List(NAME, limit=COUNT_LIMIT, least=1))
    reads: tuple[tuple[int, ...], ...] = field(
        List(List(Integer(0, COUNT_LIMIT), limit=COUNT_LIMIT), limit=COUNT_LIMIT)
    )


class RecoverCode(Record):
    """Parameters from the tensors that they are stored in: inputs by name, outputs by number."""

    plan: str = field(FILE_NAME)
    library: str = field(FILE_NAME)
    inputs: tuple[str, ...] = field(List(NAME, limit=COUNT_LIMIT))
    outputs: tuple[int, ...] = field(List(Integer(0, COUNT_LIMIT), limit=COUNT_LIMIT, least=1))


class AdapterCode(Record):
    """For weights of a type: W[n, k], A[r, k], B[n, r] and s → W + s · B · A; A, B, s are f32."""

    dtype: str = field(Choice(*DTYPES))
    plan: str = field(FILE_NAME)
    library: str = field(FILE_NAME)


class Parameters(Record):
    """The file. unread: names of the model's tensors that the program does not depend on; recover
    and adapters: what `apply_lora` needs."""

    parameters: tuple[Parameter, ...] = field(List(Parameter, limit=COUNT_LIMIT))
    fixed: tuple[FixedTensor, ...] = field(List(FixedTensor, limit=COUNT_LIMIT))
    unread: tuple[str, ...] = field(List(NAME, limit=COUNT_LIMIT))
    code: WeightsCode | None = field(Optional(WeightsCode))
    recover: RecoverCode | None = field(Optional(RecoverCode))
    adapters: tuple[AdapterCode, ...] = field(List(AdapterCode, limit=16))

    @property
    def made(self) -> set[str]:
        """The tensors of the weights file that depend on parameters."""
        stored = {row.stored for row in self.parameters if row.stored}
        return stored if self.code is None else stored.union(self.code.outputs)

    def holders(self, number: int) -> set[str]:
        """Those that depend on one parameter."""
        found = {self.parameters[number].stored} - {""}
        if self.code is not None:
            rows = zip(self.code.outputs, self.code.reads, strict=True)
            found |= {name for name, reads in rows if number in reads}
        return found

    def to_bytes(self) -> bytes:
        """The whole file."""
        data = encode(SCHEMA.write(self))
        Parameters.from_bytes(data)
        return data

    @classmethod
    def from_bytes(cls, data: bytes, path: str = PARAMETERS_NAME) -> Parameters:
        """Read and check the file; raises `BundleError`s."""
        found: Parameters = read(SCHEMA, decode(data, LIMITS, path), path)
        refuse(_broken(found), path)
        return found


SCHEMA = Fields(Parameters)


def _broken(found: Parameters) -> Broken:
    """Every relation between the fields that does not hold."""
    names = [name for row in found.parameters for name in row.names]
    names += [row.name for row in found.fixed]
    names += found.unread
    yield from twins(names, "parameters")
    stored = [row.stored for row in found.parameters if row.stored]
    made = () if found.code is None else found.code.outputs
    if len({*stored, *made}) != len(stored) + len(made):
        yield "code.outputs", "a tensor that is made twice", "each tensor once"
    numbers = [] if found.recover is None else [*found.recover.outputs]
    if found.code is not None:
        numbers += [*found.code.inputs, *(each for row in found.code.reads for each in row)]
        if len(found.code.reads) != len(found.code.outputs):
            yield "code.reads", len(found.code.reads), f"{len(found.code.outputs)}"
    for number in numbers:
        if number >= len(found.parameters):
            yield "code", number, f"a number below {len(found.parameters)}"
