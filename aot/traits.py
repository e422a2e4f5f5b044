"""What the stages know of a target: what its code can do, and plain figures."""

from __future__ import annotations

from dataclasses import dataclass

from aotc.runtime.arrays.dlpack import HOST

DESCRIPTOR_BYTES = 16  # what addresses and strides of a tensor descriptor must be multiples of
# Elements of the right operand, and terms of a sum, up to which f32 is not split.
SMALL_MATRIX, FEW_TERMS = 1024, 32
# Of a config, beside its constexprs.
FOLLOWED_EARLY = "is_followed_early"  # the next kernel's programs may come while these wait
LAUNCH_OPTIONS = ("num_warps", "num_stages", "maxnreg", "enable_fp_fusion", FOLLOWED_EARLY)


@dataclass(frozen=True, slots=True)
class TargetTraits:
    """Properties of a target that decide rewriting, fusion and tile sizes; first those of a CPU.

    Figures are those of the kind of machine, never of the building one: the same input must give
    the same bundle everywhere. No stage asks for the name of a device, but for what it can do.
    """

    device: str = HOST[0]  # where arrays lie, as native functions name it
    is_gpu: bool = False  # thousands of threads in programs that share memory and a grid
    packs_weights: bool = True  # matmuls read constant operands in panels
    has_tensor_copies: bool = False  # a unit copies tiles by descriptors
    has_tensor_maps: bool = False  # launches can make these of their parameters
    is_launched_early: bool = False  # a kernel comes while those before it still run, and waits
    has_float8: bool = False  # converts 8-bit floats
    can_overlap: bool = False  # groups of warps take turns on the tensor cores (`wgmma`)
    has_tiles: bool = False  # a CPU multiplies blocks of 16-bit and 8-bit numbers (AMX)
    product_rates: tuple[tuple[str, float], ...] = ()  # of a CPU, by type, beside those of f32
    multiplies_bf16: bool = False  # a CPU multiplies pairs of bf16, by tiles or by vectors
    lanes: int = 16  # f32 elements of one vector register
    programs_wanted: int = 8  # programs of a large kernel, so that a few cores share it evenly
    shared_by: tuple[int, ...] = (1, 2, 4, 8, 16)  # cores that should share a product evenly
    program_bytes: int = 32 * 1024  # data of one program below which starting it costs too much
    cache_bytes: int = 1024 * 1024  # cache of one core, beyond which data is slow
    byte_ns: float = 0.04  # time to move one byte to or from a buffer, one core
    operation_ns: float = 0.02  # time of one operation on one element in vector code, one core
    launch_ns: float = 2000.0  # fixed cost of one more kernel
    multiprocessors: int = 0  # of a GPU
    shared_bytes: int = 0  # shared memory that one program of a GPU may have
    dot_precision: str = "ieee"  # asked of products of f32: "ieee", or "tf32" on a GPU
    convolution_precision: str = "ieee"  # the same of convolutions of f32
    has_tf32x3: bool = False  # three products of TF32 are faster than multiply-adds of f32

    @property
    def least_precision(self) -> str:
        """The less exact one of `dot_precision` and `convolution_precision`."""
        return "tf32" if "tf32" in (self.dot_precision, self.convolution_precision) else "ieee"

    def precision_of(self, dtype: str) -> str:
        """Triton's `input_precision` of products of this type, as exact as `dot_precision` asks.

        "tf32x3" splits each f32 into two numbers of TF32, 22 bits together, and leaves out the
        product of the small ones: a product of f32 has 24 bits, and a sum of several loses more.
        """
        if dtype != "f32":
            return "ieee"
        is_split = self.has_tf32x3 and self.dot_precision == "ieee"
        return "tf32x3" if is_split else self.dot_precision

    def precision_of_product(self, dtype: str, columns: int, depth: int) -> str:
        """The same of a product by a matrix of that many elements.

        Multiply-adds are more exact where a sum has few terms, as in Fourier transforms, whose
        smallest results are differences of the largest. A small matrix has few for each element
        that is read.
        """
        found = self.precision_of(dtype)
        is_small = columns * depth <= SMALL_MATRIX or depth <= FEW_TERMS
        return "ieee" if found == "tf32x3" and is_small else found
