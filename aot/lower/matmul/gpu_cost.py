"""A roofline model of matmul kernels on GPUs: nanoseconds of a choice, to rank them by.

A step of the loop takes as long as the slowest of the tensor cores, the loads of all programs that
share a multiprocessor, and the latency of a load divided by the stages in flight. Programs run in
rounds of as many as fit. The constants of a row are fitted to sweeps of every config
(benchmarks/gpu/matmul.py, of codes benchmarks/gpu/quantised.py); tests hold the choices to those
measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from aotc.aot.lower.matmul.choice import LANES, LEAST_COLUMNS, Choice
from aotc.aot.traits import TargetTraits

SHARED_OF_SYSTEM = 1024  # bytes that each program takes beside its own
SHORT_ROW = 1024  # elements of a row that one warp norms; of longer ones many warps' share is small
RESIDENT_LIMIT = 32  # programs of one multiprocessor
REGISTERS = 65536  # of one multiprocessor
WALK_REGISTERS = 28  # of a thread that walks over columns, beside rows and columns
SCHEDULERS = 4  # of one multiprocessor, each of which runs warps of its own


@dataclass(frozen=True, slots=True)
class Machine:
    """Rates of one GPU; bytes and operations per ns, of one multiprocessor where not said."""

    multiprocessors: int
    shared_bytes: int
    has_tensor_copies: bool
    has_maps: bool  # launches make tensor descriptors
    memory_rate: float  # bytes from memory, all multiprocessors together
    cache_bytes: int  # of which half holds operands that come again
    dot_operations: float = 8300.0  # of 16-bit operands
    scalar_operations: float = 43.0  # multiplications and additions without tensor cores
    split_operations: float = 420.0  # of f32 as three products of TF32
    split_warp_operations: float = 60.0  # the same of one warp, which splits numbers meanwhile
    split_narrow_share: float = 0.1  # of both rates that tiles of fewer than 64 rows reach
    split_step_ns: float = 400.0  # of every step beside its products
    narrow_share: float = 0.066  # of the tensor cores that tiles of fewer than 64 rows reach
    load_rate: float = 145.0  # bytes by tensor descriptors
    pointer_rate: float = 73.7  # bytes by pointers
    shared_rate: float = 280.0  # bytes of shared memory, loads and the tensor cores' reads together
    cache_rate: float = 17830.0  # bytes from the second-level cache, all multiprocessors together
    launch_ns: float = 9.0
    near_ns: float = 546.0  # from asking for a tile of cached operands until it is there
    far_ns: float = 1200.0  # the same of operands in memory
    pointer_ns: float = 11.0  # more than that by pointers
    step_ns: float = 98.0  # of every step beside its products
    wanted_bytes: float = 840.0  # in flight from memory to a multiprocessor, for half its rate
    normed_elements: float = 86.0  # of rows that programs norm by themselves, in a nanosecond
    joined_ns: float = 62.0  # of joining the sums of one more warp
    scalar_step_ns: float = 300.0  # of a step of a program without tensor cores
    staged_loss: float = 1.03  # of the rate where tiles without tensor cores go by shared memory
    store_ns: float = 636.0  # to store a tile, beside its bytes
    # Operations of functions behind a product: GELU of bf16, 8 of them, has 15 instructions.
    function_operations: float = 110.0
    descriptor_ns: float = 3427.0  # for a program to make its tensor descriptors
    split_ns: float = 267.0  # to count partial tiles and to begin reading them
    partial_rate: float = 19.5  # bytes of partial tiles that one program writes or reads
    widening_ns: float = 0.1  # to widen one code where each element is computed by itself
    code_ns: float = 0.02  # the same of chunks of codes
    code_row_ns: float = 0.008  # to multiply it, for each row
    decoded_sum_ns: float = 40.0  # to join the threads' sums of one element, of several rows
    fragment_code_ns: float = 0.008  # to make a code in a tensor core's register a number
    fragment_number_ns: float = 0.0003  # to load what it is multiplied by, for each column
    fragment_bytes: float = 3454.0  # in flight to a multiprocessor, for half the memory's rate
    fragment_ns: float = 2478.0  # until the first codes are there, and to store the sums
    fragment_wait: float = 0.57  # of that for each further step where nothing else runs
    fragment_warp_ns: float = 198.0  # to join the sums of one more warp
    fragment_loss: float = 0.83  # of the time in which a last round leaves programs out
    fragment_registers: float = 36.0  # of a thread beside codes, numbers and sums
    tile_step_ns: float = 250.0  # of a step of one program that makes a tile's codes numbers
    tile_code_ns: float = 0.08  # for each code
    tile_factor_ns: float = 0.1  # to multiply that by its factor, too
    tile_share: float = 0.7  # of that which each program takes where several share one
    flatten_ns: float = 1400.0  # of a flattened walk over one tile only


def machine_of(traits: TargetTraits) -> Machine:
    """The rates of a target's row."""
    return Machine(
        multiprocessors=traits.multiprocessors,
        shared_bytes=traits.shared_bytes,
        has_tensor_copies=traits.has_tensor_copies,
        has_maps=traits.has_tensor_maps,
        memory_rate=1 / traits.byte_ns,
        cache_bytes=traits.cache_bytes,
    )


def nanoseconds(choice: Choice, machine: Machine) -> float:
    """Expected time of one launch."""
    problem = choice.problem
    is_cold = problem.bytes > machine.cache_bytes // 2
    floor = problem.bytes / machine.memory_rate if is_cold else 0.0
    if choice.style.is_decoding:
        return machine.launch_ns + _decoding_ns(choice, machine)
    if choice.style.is_fragments:
        return machine.launch_ns + _fragments_ns(choice, machine)
    if problem.code_bits and not choice.has_codes:
        # Each tile of the right operand is widened by itself.
        height = choice.tile.columns if choice.style.is_swapped else choice.tile.rows
        elements = problem.batch * problem.columns * problem.depth * ceil(problem.rows / height)
        widening = elements * machine.widening_ns / machine.multiprocessors
        floor = max(floor, widening + machine.scalar_step_ns)
    if choice.style.is_flat:
        return machine.launch_ns + _gemv_ns(choice, machine, floor)
    time = machine.launch_ns + _rounds_ns(choice, machine, is_cold)
    if choice.style.has_descriptors and not choice.style.has_maps:
        time += machine.descriptor_ns
    return max(time, machine.launch_ns + _streamed_ns(choice, machine, floor))


def _streamed_ns(choice: Choice, machine: Machine, floor: float) -> float:
    """All operands from memory: the more bytes are in flight, the nearer to its rate."""
    tile, size = choice.tile, choice.problem.itemsize_bytes
    programs = choice.tiles * choice.problem.batch * choice.split
    busy = min(_resident(choice, machine), ceil(programs / machine.multiprocessors))
    if choice.style.template == "persistent":
        busy = 1
    in_flight = busy * (tile.rows + tile.columns) * tile.depth * size * max(1, tile.stages - 1)
    idle = machine.multiprocessors / min(programs, machine.multiprocessors)
    tail = _latency_ns(choice, machine, True) + _end_ns(choice, machine)
    return floor * (1 + machine.wanted_bytes * idle / in_flight) + tail


def _rounds_ns(choice: Choice, machine: Machine, is_cold: bool) -> float:
    """All rounds of programs, one after the other."""
    programs = choice.tiles * choice.problem.batch * choice.split
    resident = _resident(choice, machine)
    round_size = resident * machine.multiprocessors
    steps = ceil(choice.problem.depth / choice.tile.depth / choice.split)
    if choice.style.template == "persistent":
        # Programs go on to their next tile: stores overlap with loads only if flattened.
        tiles = ceil(programs / machine.multiprocessors)
        busy = min(programs, machine.multiprocessors)
        more = machine.flatten_ns * choice.flatten if tiles == 1 else 0.0
        one = _end_ns(choice, machine) * (0.6 if choice.flatten and tiles > 1 else 1.0)
        one += _functions_ns(choice, machine)
        step = _step_ns(choice, machine, 1, busy, is_cold)
        return _latency_ns(choice, machine, is_cold) + tiles * (steps * step + one) + more
    full, rest = divmod(programs, round_size)
    time = _latency_ns(choice, machine, is_cold)
    for count, width in ((full, resident), (1, ceil(rest / machine.multiprocessors))):
        if count and width:
            busy = min(programs, machine.multiprocessors)
            step = _step_ns(choice, machine, width, busy, is_cold)
            # The next round's programs begin as those of the last one end, one by one.
            begin = _latency_ns(choice, machine, is_cold) / resident
            end = _end_ns(choice, machine) + width * _functions_ns(choice, machine)
            time += count * (steps * step + end + begin)
    return time


def _resident(choice: Choice, machine: Machine) -> int:
    """Programs that a multiprocessor holds at once, by shared memory and registers."""
    tile = choice.tile
    threads = 32 * tile.warps
    others = 45 if choice.style.has_descriptors else 75
    registers = min(255, tile.rows * tile.columns // threads + others)
    by_shared = (machine.shared_bytes + SHARED_OF_SYSTEM) // (
        choice.shared_bytes + SHARED_OF_SYSTEM
    )
    return max(1, min(by_shared, REGISTERS // (registers * threads), RESIDENT_LIMIT))


def _latency_ns(choice: Choice, machine: Machine, is_cold: bool) -> float:
    base = machine.far_ns if is_cold else machine.near_ns
    return base if choice.style.has_descriptors else base + machine.pointer_ns


def _step_ns(choice: Choice, machine: Machine, width: int, busy: int, is_cold: bool) -> float:
    """One step of `width` programs that share a multiprocessor; `busy` multiprocessors work."""
    tile, problem = choice.tile, choice.problem
    size = problem.itemsize_bytes
    loaded = (tile.rows + tile.columns) * tile.depth * size
    # Each instruction reads 64 rows of A and all columns of B.
    read = (tile.rows + tile.columns * max(1, tile.rows // 64)) * tile.depth * size
    operations, alone_ns = 2 * tile.rows * tile.columns * tile.depth, 0.0
    step_ns = machine.step_ns
    if problem.dtype in ("f32", "f64") and problem.precision == "ieee":
        rate = machine.scalar_operations
    elif problem.precision == "tf32x3":
        share = 1.0 if tile.rows >= 64 else machine.split_narrow_share
        rate = machine.split_operations * share
        alone_ns = operations / (machine.split_warp_operations * tile.warps * share)
        step_ns = machine.split_step_ns
    else:
        rate = machine.dot_operations * (1.0 if tile.rows >= 64 else machine.narrow_share)
        rate = rate * 2 / size
    by_program = machine.load_rate if choice.style.has_descriptors else machine.pointer_rate
    latency = _latency_ns(choice, machine, is_cold) + loaded / by_program
    return max(
        width * operations / rate + step_ns,
        width * loaded / by_program,
        width * (loaded + read) / machine.shared_rate,
        width * loaded * busy / machine.cache_rate,
        latency / max(1, tile.stages - 1),
        alone_ns,
        _codes_ns(choice, machine) * max(1.0, machine.tile_share * width),
    )


def _codes_ns(choice: Choice, machine: Machine) -> float:
    """To make one program's tile of codes numbers."""
    if not choice.has_codes:
        return 0.0
    tile, style = choice.tile, choice.style
    codes = (tile.rows if style.is_swapped else tile.columns) * tile.depth
    factor = 0.0 if style.multiplies_codes else machine.tile_factor_ns
    return machine.tile_step_ns + codes * (machine.tile_code_ns + factor)


def _end_ns(choice: Choice, machine: Machine) -> float:
    """From the last step of a tile to its stores: the reduction of a split one, the epilogue."""
    tile, problem = choice.tile, choice.problem
    area = tile.rows * tile.columns
    time = machine.store_ns + area * problem.itemsize_bytes / machine.load_rate
    if choice.split > 1:
        time += machine.split_ns + (1 + choice.split) * area * 4 / machine.partial_rate
    return time


def _functions_ns(choice: Choice, machine: Machine) -> float:
    """The functions of a tile's elements, on a multiprocessor of its own."""
    work = choice.tile.rows * choice.tile.columns * choice.problem.function_work
    return work / machine.function_operations


def _decoding_ns(choice: Choice, machine: Machine) -> float:
    """Chunks of codes: bytes in flight, and a few operations for every code."""
    tile, problem = choice.tile, choice.problem
    # Other layers' weights have pushed these out of the cache.
    floor = problem.bytes / machine.memory_rate
    programs = choice.tiles * problem.batch
    threads = 32 * tile.warps
    held = tile.rows * problem.chunk + tile.columns * (4 + tile.rows)
    registers = 40 + held * max(1, tile.depth // problem.chunk // threads)
    fit = min(REGISTERS // (registers * threads), 2048 // threads, RESIDENT_LIMIT)
    each = ceil(programs / machine.multiprocessors)
    resident = max(1, min(fit, each))
    steps = ceil(problem.depth / tile.depth)
    elements = problem.columns * steps * tile.depth * problem.batch / machine.multiprocessors
    arithmetic = elements * (machine.code_ns + tile.rows * machine.code_row_ns)
    arithmetic *= max(1.0, SCHEDULERS * machine.multiprocessors / (programs * tile.warps))
    # What each program does for its rows of A, and at its end.
    own = tile.rows * steps * tile.depth / machine.scalar_operations
    arithmetic += each * own
    in_flight = resident * tile.columns * tile.depth * problem.code_bits / 8
    by_latency = floor * (1 + machine.wanted_bytes / in_flight)
    idle = each * machine.multiprocessors / programs
    tail = machine.far_ns + steps * machine.scalar_step_ns * ceil(each / resident)
    if tile.rows > 1:
        tail += each * tile.rows * tile.columns * machine.decoded_sum_ns
    if problem.is_normed:
        tail += problem.depth * programs / machine.multiprocessors / machine.normed_elements
    return max(by_latency, arithmetic, floor * min(idle, 2.0)) + tail


def _fragments_ns(choice: Choice, machine: Machine) -> float:
    """Codes in the registers of tensor cores: bytes in flight, and a few operations for every code
    and for every number that codes are multiplied by."""
    tile, problem = choice.tile, choice.problem
    floor = problem.bytes / machine.memory_rate
    programs = ceil(problem.columns / tile.rows) * ceil(problem.rows / tile.columns)
    each = ceil(programs / machine.multiprocessors)
    steps, threads = ceil(problem.depth / tile.depth), LANES * tile.warps
    codes = tile.rows * tile.depth * problem.code_bits // 8
    sums = tile.rows * tile.columns * tile.depth // problem.piece
    held = machine.fragment_registers + (codes / 4 + tile.columns * tile.depth / 4 + sums) / threads
    resident = max(1, min(each, int(REGISTERS / (held * threads))))
    rounds = ceil(each / resident)
    in_flight = resident * codes * min(1.0, problem.depth / tile.depth)
    numbers = tile.columns * 16 / tile.rows * 8 / problem.code_bits  # those of nibbles are sorted
    work = machine.fragment_code_ns + numbers * machine.fragment_number_ns
    idle = min(2.0, each * machine.multiprocessors / programs)
    arithmetic = problem.columns * steps * tile.depth / machine.multiprocessors * work * idle
    loss = 1 + machine.fragment_loss * (rounds * resident / each - 1)
    waits = tile.columns / LEAST_COLUMNS * (rounds * steps - 1) / resident
    waits = 1 + machine.fragment_wait * waits
    tail = machine.fragment_ns * waits + tile.warps * machine.fragment_warp_ns
    return (floor * (1 + machine.fragment_bytes / in_flight) + arithmetic) * loss + tail


def _gemv_ns(choice: Choice, machine: Machine, floor: float) -> float:
    """Without tensor cores: bytes in flight, and additions for every row of A."""
    tile, problem = choice.tile, choice.problem
    programs = choice.tiles * problem.batch
    threads = 32 * tile.warps
    depth = -(-problem.depth // tile.depth) * tile.depth
    # Products are added in all rows of the padded tile.
    work = tile.rows * tile.columns * depth * programs / machine.multiprocessors
    arithmetic = work / machine.scalar_operations
    resident = min(2048 // threads, RESIDENT_LIMIT, max(1, programs // machine.multiprocessors))
    if floor:
        floor *= ceil(problem.rows / tile.rows)  # the next rows' programs come after all columns
    if tile.stages > 1:
        floor *= machine.staged_loss
    if choice.style.is_walk:
        resident = choice.programs // machine.multiprocessors
    in_flight = resident * tile.columns * tile.depth * problem.itemsize_bytes * tile.stages
    by_latency = floor * (1 + machine.wanted_bytes / max(1, in_flight))
    idle = ceil(programs / machine.multiprocessors) * machine.multiprocessors / programs
    tail = machine.far_ns + depth / tile.depth * machine.scalar_step_ns
    if choice.style.is_walk:
        # The next columns are on the way, and each program norms the row once for all of its own.
        rounds = ceil(programs / choice.programs)
        idle, programs = rounds * choice.programs / programs, choice.programs
        by_latency, tail = by_latency * idle, machine.near_ns if floor else tail
    if problem.is_normed and problem.depth <= SHORT_ROW:
        tail += depth * programs / machine.multiprocessors / machine.normed_elements
        tail += (tile.warps - 1) * machine.joined_ns
    return max(by_latency, arithmetic, floor * min(idle, 2.0)) + tail


def walks_at_once(choice: Choice) -> int:
    """Programs that walk over columns which a multiprocessor holds: each thread has its part of the
    rows as f32 and of the columns as they are stored."""
    tile, threads = choice.tile, LANES * choice.tile.warps
    held = (4 * tile.rows + choice.problem.itemsize_bytes * tile.columns) * tile.depth / threads / 4
    return int(REGISTERS / ((WALK_REGISTERS + held) * threads))
