"""EXECUTOR ABI 1: byte offsets of the memory that the runtime and a bundle's native code share.

`aot/targets/cpu/executor.py` compiles them into every bundle's library, `drivers/cpu/driver.py` and
`drivers/cpu/pool.py` write them. A change of any number here is a new ABI.

    pool     one per process: control words, then SLOT_COUNT job slots
    slot     one per Python thread that is inside a call: what its workers may claim
    session  one per `CpuSession`: launches, patches and memory of one program's calls
    launch   one row of the launch plan; patch: one argument that changes from call to call

A slot's claim word packs generation, number of chunks and next chunk. A worker reads it, reads the
description and takes the chunk by compare-and-swap: had the description changed, so would the
generation, and the swap fails. The caller counts finished chunks, never workers.
"""

ABI = 1

POOL_BYTES = 4096
POOL_SLOTS_USED = 0  # i32: slots from here on were never taken
POOL_SPIN_TICKS = 8  # i64: time-stamp ticks that an idle worker spins before it sleeps
POOL_SLEEPERS = 64  # i32: not 0 when a worker sleeps or is about to
POOL_WAKE = 68  # i32: futex word, counts wake-ups
POOL_SLOTS = 128

SLOT_BYTES = 192  # three cache lines: claims, finished counts and descriptions do not share one
SLOT_COUNT = 16
SLOT_CLAIM = 0  # i64: generation · 2²⁴ | chunks · 2¹² | next chunk
SLOT_FINISHED = 64  # i64: chunks done
SLOT_LAUNCH = 128  # ptr
SLOT_SCRATCH = 136  # ptr: thread 0's block
SLOT_SCRATCH_STRIDE = 144  # i64: bytes between the blocks of two threads
SLOT_WORKERS = 152  # i32: workers 1 … this may claim
SLOT_OWNER = 156  # i32: 1 while a caller holds the slot
CHUNK_BITS = 12
CHUNKS_LIMIT = (1 << CHUNK_BITS) - 1

SESSION_BYTES = 128
SESSION_POOL = 0  # ptr
SESSION_LAUNCHES = 8  # ptr
SESSION_LAUNCH_COUNT = 16  # i64
SESSION_SCRATCH = 24  # ptr
SESSION_SCRATCH_STRIDE = 32  # i64
SESSION_WORKERS = 40  # i32
SESSION_PARALLEL = 44  # i32: 1 if a launch has more than one chunk
SESSION_PATCHES = 48  # ptr
SESSION_PATCH_COUNT = 56  # i64
SESSION_ADDRESSES = 64  # ptr: i64 addresses of all inputs, then of all outputs
SESSION_FAILED = 72  # i32: not 0 once a native function has failed; no launch follows it

LAUNCH_BYTES = 64
LAUNCH_FUNCTION = 0  # ptr: KERNEL ABI 1
LAUNCH_ARGUMENTS = 8  # ptr: 8-byte slots
LAUNCH_GRID = 16  # i32[3]
LAUNCH_PROGRAMS = 28  # i32: product of the grid
LAUNCH_CHUNK_PROGRAMS = 32  # i32: programs of a chunk, the last one may have fewer
LAUNCH_CHUNKS = 36  # i32: at most CHUNKS_LIMIT

PATCH_BYTES = 16
PATCH_SLOT = 0  # ptr: the argument slot to write
PATCH_INDEX = 8  # i64: into the session's addresses

COPY_RANK_LIMIT = 8

# The frame of a native step: `runtime/backends/frame.py` says what follows it.
FRAME_FUNCTION = 0  # ptr
FRAME_TENSORS = 8  # ptr
FRAME_SCALARS = 16  # ptr
FRAME_FAILED = 24  # ptr: i32 of the session, set to the launch's number + 1 when a call failed
FRAME_CONTEXT = 32  # aotc_context, copied for each tile
FRAME_STATUS = 104  # i32: what the first failing tile returned, 0 before
FRAME_NUMBER = 108  # i32: what goes into the session's status
FRAME_MESSAGE = 112
MESSAGE_BYTES = 512
FRAME_BYTES = FRAME_MESSAGE + MESSAGE_BYTES
CONTEXT_BYTES = 72  # of an aotc_context
CONTEXT_TILE = 16
CONTEXT_TILES = 20
CONTEXT_STREAM = 24
CONTEXT_WORKSPACE = 40
CONTEXT_MESSAGE = 56
CONTEXT_MESSAGE_BYTES = 64
