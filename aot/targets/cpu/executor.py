"""The executor as LLVM IR text: what every bundle's library holds beside its kernels.

    aotc_abi() -> i32                           EXECUTOR ABI number
    aotc_execute(session)                       run all launches in order over the pool
    aotc_worker(pool, index)                    a worker's endless loop; index from 1
    aotc_native(args, x, y, z, grid, scratch)   a kernel: call a native function of the user's
    aotc_copy_strided(to, from, item bytes, rank, shape, strides in bytes)   to contiguous memory

Structures and the claim protocol are described in `runtime/drivers/cpu/executor_abi.py`. The caller
works like a worker and waits only for chunks that somebody has claimed: a worker that sleeps, or
that the system does not run, costs nothing.
"""

from __future__ import annotations

from aotc.aot.targets.toolchain import Export, Object, compile_module
from aotc.runtime.bundle.native_plan import SYMBOL
from aotc.runtime.drivers.cpu import executor_abi as abi

CPU = "x86-64-v2"  # no wide registers here, so that none need clearing between kernels
YIELD_AFTER_SPINS = 2000
FUTEX_CALL, FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE = 202, 128, 129
CHUNK_MASK = abi.CHUNKS_LIMIT
EXPORTS = (
    Export("aotc_abi", "abi", (), "i32"),
    Export("aotc_execute", "execute", ("ptr",)),
    Export("aotc_worker", "worker", ("ptr", "i32")),
    Export(SYMBOL, "native", ("ptr", "i32", "i32", "i32", "ptr", "ptr")),
    Export("aotc_copy_strided", "copy_strided", ("ptr", "ptr", "i64", "i64", "ptr", "ptr")),
)

DECLARATIONS = f"""\
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()

define i32 @abi() {{
  ret i32 {abi.ABI}
}}
"""

# Programs are numbered with x fastest; the first one's coordinates are divided out once.
RUN_PROGRAMS = f"""\
define internal void @run_programs(ptr %launch, i32 %first, i32 %end, ptr %scratch) nounwind {{
entry:
  %function = load ptr, ptr %launch
  %arguments.at = getelementptr i8, ptr %launch, i64 {abi.LAUNCH_ARGUMENTS}
  %arguments = load ptr, ptr %arguments.at
  %grid = getelementptr i8, ptr %launch, i64 {abi.LAUNCH_GRID}
  %grid.y.at = getelementptr i8, ptr %grid, i64 4
  %grid.x = load i32, ptr %grid
  %grid.y = load i32, ptr %grid.y.at
  %rows = udiv i32 %first, %grid.x
  %x.first = urem i32 %first, %grid.x
  %y.first = urem i32 %rows, %grid.y
  %z.first = udiv i32 %rows, %grid.y
  br label %loop
loop:
  %number = phi i32 [ %first, %entry ], [ %number.next, %loop ]
  %x = phi i32 [ %x.first, %entry ], [ %x.next, %loop ]
  %y = phi i32 [ %y.first, %entry ], [ %y.next, %loop ]
  %z = phi i32 [ %z.first, %entry ], [ %z.next, %loop ]
  call void %function(ptr %arguments, i32 %x, i32 %y, i32 %z, ptr %grid, ptr %scratch)
  %x.step = add i32 %x, 1
  %x.ends = icmp eq i32 %x.step, %grid.x
  %x.next = select i1 %x.ends, i32 0, i32 %x.step
  %x.carry = zext i1 %x.ends to i32
  %y.step = add i32 %y, %x.carry
  %y.ends = icmp eq i32 %y.step, %grid.y
  %y.next = select i1 %y.ends, i32 0, i32 %y.step
  %y.carry = zext i1 %y.ends to i32
  %z.next = add i32 %z, %y.carry
  %number.next = add i32 %number, 1
  %more = icmp ult i32 %number.next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""

# The description is read before the swap: see the module docstring of executor_abi.
CLAIM = f"""\
define internal i1 @claim(ptr %slot, i32 %index) nounwind noinline {{
entry:
  %launch.at = getelementptr i8, ptr %slot, i64 {abi.SLOT_LAUNCH}
  %scratch.at = getelementptr i8, ptr %slot, i64 {abi.SLOT_SCRATCH}
  %stride.at = getelementptr i8, ptr %slot, i64 {abi.SLOT_SCRATCH_STRIDE}
  %workers.at = getelementptr i8, ptr %slot, i64 {abi.SLOT_WORKERS}
  br label %attempt
attempt:
  %word = load atomic i64, ptr %slot acquire, align 8
  %next = and i64 %word, {CHUNK_MASK}
  %shifted = lshr i64 %word, {abi.CHUNK_BITS}
  %limit = and i64 %shifted, {CHUNK_MASK}
  %open = icmp ult i64 %next, %limit
  br i1 %open, label %describe, label %none
describe:
  %launch = load atomic ptr, ptr %launch.at monotonic, align 8
  %scratch = load atomic ptr, ptr %scratch.at monotonic, align 8
  %stride = load atomic i64, ptr %stride.at monotonic, align 8
  %workers = load atomic i32, ptr %workers.at monotonic, align 4
  %allowed = icmp ule i32 %index, %workers
  br i1 %allowed, label %take, label %none
take:
  %taken = add i64 %word, 1
  %pair = cmpxchg ptr %slot, i64 %word, i64 %taken acq_rel acquire, align 8
  %mine = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %mine, label %work, label %attempt
work:
  %programs.at = getelementptr i8, ptr %launch, i64 {abi.LAUNCH_PROGRAMS}
  %chunk.at = getelementptr i8, ptr %launch, i64 {abi.LAUNCH_CHUNK_PROGRAMS}
  %programs = load i32, ptr %programs.at
  %chunk = load i32, ptr %chunk.at
  %next.short = trunc i64 %next to i32
  %first = mul i32 %next.short, %chunk
  %left = sub i32 %programs, %first
  %count = call i32 @llvm.umin.i32(i32 %left, i32 %chunk)
  %end = add i32 %first, %count
  %index.long = zext i32 %index to i64
  %offset = mul i64 %index.long, %stride
  %own = getelementptr i8, ptr %scratch, i64 %offset
  call void @run_programs(ptr %launch, i32 %first, i32 %end, ptr %own)
  %finished.at = getelementptr i8, ptr %slot, i64 {abi.SLOT_FINISHED}
  %before = atomicrmw add ptr %finished.at, i64 1 release, align 8
  ret i1 true
none:
  ret i1 false
}}
"""

WORKER = f"""\
define internal i1 @scan(ptr %pool, i32 %index) nounwind {{
entry:
  %used.at = getelementptr i8, ptr %pool, i64 {abi.POOL_SLOTS_USED}
  %used = load atomic i32, ptr %used.at acquire, align 4
  %any = icmp eq i32 %used, 0
  br i1 %any, label %done, label %slots
slots:
  %number = phi i32 [ 0, %entry ], [ %number.next, %following ]
  %worked = phi i1 [ false, %entry ], [ %worked.slot, %following ]
  %number.long = zext i32 %number to i64
  %offset = mul i64 %number.long, {abi.SLOT_BYTES}
  %start = add i64 %offset, {abi.POOL_SLOTS}
  %slot = getelementptr i8, ptr %pool, i64 %start
  br label %chunks
chunks:
  %worked.slot = phi i1 [ %worked, %slots ], [ true, %chunks ]
  %claimed = call i1 @claim(ptr %slot, i32 %index)
  br i1 %claimed, label %chunks, label %following
following:
  %number.next = add i32 %number, 1
  %more = icmp ult i32 %number.next, %used
  br i1 %more, label %slots, label %done
done:
  %result = phi i1 [ false, %entry ], [ %worked.slot, %following ]
  ret i1 %result
}}

define void @worker(ptr %pool, i32 %index) nounwind noreturn {{
entry:
  %spin.at = getelementptr i8, ptr %pool, i64 {abi.POOL_SPIN_TICKS}
  %spin = load i64, ptr %spin.at
  %sleepers.at = getelementptr i8, ptr %pool, i64 {abi.POOL_SLEEPERS}
  %wake.at = getelementptr i8, ptr %pool, i64 {abi.POOL_WAKE}
  br label %begin
begin:
  %since = call i64 @llvm.readcyclecounter()
  br label %look
look:
  %worked = call i1 @scan(ptr %pool, i32 %index)
  br i1 %worked, label %begin, label %idle
idle:
  call void @llvm.x86.sse2.pause()
  %now = call i64 @llvm.readcyclecounter()
  %waited = sub i64 %now, %since
  %patient = icmp ult i64 %waited, %spin
  br i1 %patient, label %look, label %tire
tire:
  %wakes = load atomic i32, ptr %wake.at acquire, align 4
  %sleepers = atomicrmw add ptr %sleepers.at, i32 1 seq_cst, align 4
  %late = call i1 @scan(ptr %pool, i32 %index)
  br i1 %late, label %begin, label %sleep
sleep:
  %futex = call i64 (i64, ...) @syscall(i64 {FUTEX_CALL}, ptr %wake.at, \
i64 {FUTEX_WAIT_PRIVATE}, i32 %wakes, ptr null, ptr null, i64 0)
  br label %begin
}}
"""

# A waker takes the count to 0: workers that were counted are on their way, others count anew.
SPREAD = f"""\
define internal void @wake_sleepers(ptr %pool) nounwind noinline cold {{
entry:
  %sleepers.at = getelementptr i8, ptr %pool, i64 {abi.POOL_SLEEPERS}
  %count = atomicrmw xchg ptr %sleepers.at, i32 0 seq_cst, align 4
  %any = icmp ne i32 %count, 0
  br i1 %any, label %wake, label %done
wake:
  %wake.at = getelementptr i8, ptr %pool, i64 {abi.POOL_WAKE}
  %before = atomicrmw add ptr %wake.at, i32 1 seq_cst, align 4
  %futex = call i64 (i64, ...) @syscall(i64 {FUTEX_CALL}, ptr %wake.at, \
i64 {FUTEX_WAKE_PRIVATE}, i64 2147483647, ptr null, ptr null, i64 0)
  br label %done
done:
  ret void
}}

define internal void @spread(ptr %pool, ptr %slot, ptr %launch, i32 %chunks) nounwind {{
entry:
  %launch.at = getelementptr i8, ptr %slot, i64 {abi.SLOT_LAUNCH}
  %finished.at = getelementptr i8, ptr %slot, i64 {abi.SLOT_FINISHED}
  %sleepers.at = getelementptr i8, ptr %pool, i64 {abi.POOL_SLEEPERS}
  %chunks.long = zext i32 %chunks to i64
  store atomic ptr %launch, ptr %launch.at monotonic, align 8
  store atomic i64 0, ptr %finished.at monotonic, align 8
  %word = load atomic i64, ptr %slot monotonic, align 8
  %generation = lshr i64 %word, {2 * abi.CHUNK_BITS}
  %generation.next = add i64 %generation, 1
  %high = shl i64 %generation.next, {2 * abi.CHUNK_BITS}
  %middle = shl i64 %chunks.long, {abi.CHUNK_BITS}
  %fresh = or i64 %high, %middle
  store atomic i64 %fresh, ptr %slot seq_cst, align 8
  %sleepers = load atomic i32, ptr %sleepers.at seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %wake, label %work
wake:
  call void @wake_sleepers(ptr %pool)
  br label %work
work:
  %claimed = call i1 @claim(ptr %slot, i32 0)
  br i1 %claimed, label %work, label %wait
wait:
  %spins = phi i32 [ 0, %work ], [ %spins.next, %pause ], [ %spins, %yield ]
  %finished = load atomic i64, ptr %finished.at acquire, align 8
  %complete = icmp eq i64 %finished, %chunks.long
  br i1 %complete, label %done, label %choose
choose:
  %long = icmp ugt i32 %spins, {YIELD_AFTER_SPINS}
  br i1 %long, label %yield, label %pause
pause:
  call void @llvm.x86.sse2.pause()
  %spins.next = add i32 %spins, 1
  br label %wait
yield:
  %yielded = call i32 @sched_yield()
  br label %wait
done:
  ret void
}}
"""

# More callers at once than slots: the others run their launches alone.
TAKE_SLOT = f"""\
define internal ptr @take_slot(ptr %pool, ptr %session) nounwind {{
entry:
  %used.at = getelementptr i8, ptr %pool, i64 {abi.POOL_SLOTS_USED}
  br label %look
look:
  %number = phi i64 [ 0, %entry ], [ %number.next, %following ]
  %offset = mul i64 %number, {abi.SLOT_BYTES}
  %start = add i64 %offset, {abi.POOL_SLOTS}
  %slot = getelementptr i8, ptr %pool, i64 %start
  %owner.at = getelementptr i8, ptr %slot, i64 {abi.SLOT_OWNER}
  %pair = cmpxchg ptr %owner.at, i32 0, i32 1 acq_rel acquire, align 4
  %mine = extractvalue {{ i32, i1 }} %pair, 1
  %number.next = add i64 %number, 1
  br i1 %mine, label %take, label %following
following:
  %more = icmp ult i64 %number.next, {abi.SLOT_COUNT}
  br i1 %more, label %look, label %none
take:
  %scratch.from = getelementptr i8, ptr %session, i64 {abi.SESSION_SCRATCH}
  %stride.from = getelementptr i8, ptr %session, i64 {abi.SESSION_SCRATCH_STRIDE}
  %workers.from = getelementptr i8, ptr %session, i64 {abi.SESSION_WORKERS}
  %scratch.at = getelementptr i8, ptr %slot, i64 {abi.SLOT_SCRATCH}
  %stride.at = getelementptr i8, ptr %slot, i64 {abi.SLOT_SCRATCH_STRIDE}
  %workers.at = getelementptr i8, ptr %slot, i64 {abi.SLOT_WORKERS}
  %scratch = load ptr, ptr %scratch.from
  %stride = load i64, ptr %stride.from
  %workers = load i32, ptr %workers.from
  store atomic ptr %scratch, ptr %scratch.at monotonic, align 8
  store atomic i64 %stride, ptr %stride.at monotonic, align 8
  store atomic i32 %workers, ptr %workers.at monotonic, align 4
  %used = trunc i64 %number.next to i32
  %seen = load atomic i32, ptr %used.at monotonic, align 4
  %known = icmp uge i32 %seen, %used
  br i1 %known, label %done, label %announce
announce:
  %before = atomicrmw umax ptr %used.at, i32 %used seq_cst, align 4
  br label %done
done:
  ret ptr %slot
none:
  ret ptr null
}}
"""

EXECUTE = f"""\
define internal void @patch(ptr %session) nounwind {{
entry:
  %patches.at = getelementptr i8, ptr %session, i64 {abi.SESSION_PATCHES}
  %count.at = getelementptr i8, ptr %session, i64 {abi.SESSION_PATCH_COUNT}
  %addresses.at = getelementptr i8, ptr %session, i64 {abi.SESSION_ADDRESSES}
  %patches = load ptr, ptr %patches.at
  %count = load i64, ptr %count.at
  %addresses = load ptr, ptr %addresses.at
  br label %look
look:
  %number = phi i64 [ 0, %entry ], [ %number.next, %write ]
  %more = icmp ult i64 %number, %count
  br i1 %more, label %write, label %done
write:
  %offset = mul i64 %number, {abi.PATCH_BYTES}
  %patch = getelementptr i8, ptr %patches, i64 %offset
  %index.at = getelementptr i8, ptr %patch, i64 {abi.PATCH_INDEX}
  %slot = load ptr, ptr %patch
  %index = load i64, ptr %index.at
  %address.at = getelementptr i64, ptr %addresses, i64 %index
  %address = load i64, ptr %address.at
  store i64 %address, ptr %slot
  %number.next = add i64 %number, 1
  br label %look
done:
  ret void
}}

define void @execute(ptr %session) nounwind {{
entry:
  call void @patch(ptr %session)
  %launches.at = getelementptr i8, ptr %session, i64 {abi.SESSION_LAUNCHES}
  %count.at = getelementptr i8, ptr %session, i64 {abi.SESSION_LAUNCH_COUNT}
  %scratch.at = getelementptr i8, ptr %session, i64 {abi.SESSION_SCRATCH}
  %parallel.at = getelementptr i8, ptr %session, i64 {abi.SESSION_PARALLEL}
  %failed.at = getelementptr i8, ptr %session, i64 {abi.SESSION_FAILED}
  %pool = load ptr, ptr %session
  %launches = load ptr, ptr %launches.at
  %count = load i64, ptr %count.at
  %scratch = load ptr, ptr %scratch.at
  %parallel = load i32, ptr %parallel.at
  %spreads = icmp ne i32 %parallel, 0
  br i1 %spreads, label %take, label %begin
take:
  %taken = call ptr @take_slot(ptr %pool, ptr %session)
  br label %begin
begin:
  %slot = phi ptr [ null, %entry ], [ %taken, %take ]
  %alone = icmp eq ptr %slot, null
  br label %look
look:
  %number = phi i64 [ 0, %begin ], [ %number.next, %following ]
  %left = icmp ult i64 %number, %count
  %failed = load atomic i32, ptr %failed.at acquire, align 4
  %sound = icmp eq i32 %failed, 0
  %more = and i1 %left, %sound
  br i1 %more, label %choose, label %release
choose:
  %offset = mul i64 %number, {abi.LAUNCH_BYTES}
  %launch = getelementptr i8, ptr %launches, i64 %offset
  %chunks.at = getelementptr i8, ptr %launch, i64 {abi.LAUNCH_CHUNKS}
  %chunks = load i32, ptr %chunks.at
  %single = icmp ult i32 %chunks, 2
  %here = or i1 %single, %alone
  br i1 %here, label %inline, label %shared
inline:
  %programs.at = getelementptr i8, ptr %launch, i64 {abi.LAUNCH_PROGRAMS}
  %programs = load i32, ptr %programs.at
  call void @run_programs(ptr %launch, i32 0, i32 %programs, ptr %scratch)
  br label %following
shared:
  call void @spread(ptr %pool, ptr %slot, ptr %launch, i32 %chunks)
  br label %following
following:
  %number.next = add i64 %number, 1
  br label %look
release:
  br i1 %alone, label %done, label %free
free:
  %owner.at = getelementptr i8, ptr %slot, i64 {abi.SLOT_OWNER}
  store atomic i32 0, ptr %owner.at release, align 4
  br label %done
done:
  ret void
}}
"""


# The kernel that calls a native function; its one argument is a frame
# (`runtime/backends/frame.py`), laid out by the runtime when the session opened; tensors that
# change from call to call are patched into it. Each tile has a context and a message of its own.
# The first tile that fails keeps its status and message in the frame and tells the session, which
# then ends: the launches after it would read what was never written.
NATIVE_CALL = f"""\
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define void @native(ptr %arguments, i32 %x, i32 %y, i32 %z, ptr %grid, ptr %scratch) nounwind {{
entry:
  %context = alloca [{abi.CONTEXT_BYTES} x i8], align 8
  %message = alloca [{abi.MESSAGE_BYTES} x i8], align 8
  %frame = load ptr, ptr %arguments
  %template = getelementptr i8, ptr %frame, i64 {abi.FRAME_CONTEXT}
  call void @llvm.memcpy.p0.p0.i64(ptr %context, ptr %template, i64 {abi.CONTEXT_BYTES}, i1 false)
  store i8 0, ptr %message
  %tile.at = getelementptr i8, ptr %context, i64 {abi.CONTEXT_TILE}
  %tiles.at = getelementptr i8, ptr %context, i64 {abi.CONTEXT_TILES}
  %workspace.at = getelementptr i8, ptr %context, i64 {abi.CONTEXT_WORKSPACE}
  %message.at = getelementptr i8, ptr %context, i64 {abi.CONTEXT_MESSAGE}
  %tiles = load i32, ptr %grid
  store i32 %x, ptr %tile.at
  store i32 %tiles, ptr %tiles.at
  store ptr %scratch, ptr %workspace.at
  store ptr %message, ptr %message.at
  %tensors.at = getelementptr i8, ptr %frame, i64 {abi.FRAME_TENSORS}
  %scalars.at = getelementptr i8, ptr %frame, i64 {abi.FRAME_SCALARS}
  %function = load ptr, ptr %frame
  %tensors = load ptr, ptr %tensors.at
  %scalars = load ptr, ptr %scalars.at
  %status = call i32 %function(ptr %context, ptr %tensors, ptr %scalars)
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %done, label %failed
failed:
  %status.at = getelementptr i8, ptr %frame, i64 {abi.FRAME_STATUS}
  %pair = cmpxchg ptr %status.at, i32 0, i32 %status acq_rel acquire, align 4
  %first = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %first, label %tell, label %done
tell:
  %kept = getelementptr i8, ptr %frame, i64 {abi.FRAME_MESSAGE}
  call void @llvm.memcpy.p0.p0.i64(ptr %kept, ptr %message, i64 {abi.MESSAGE_BYTES}, i1 false)
  %failed.at = getelementptr i8, ptr %frame, i64 {abi.FRAME_FAILED}
  %number.at = getelementptr i8, ptr %frame, i64 {abi.FRAME_NUMBER}
  %session.failed = load ptr, ptr %failed.at
  %number = load i32, ptr %number.at
  store atomic i32 %number, ptr %session.failed release, align 4
  br label %done
done:
  ret void
}}
"""


def _copy_items(item_bytes: int) -> str:
    """A loop over one dim of strided items of a size that has a register."""
    kind, label = f"i{8 * item_bytes}", f"items.{item_bytes}"
    return f"""\
{label}:
  %n.{label} = phi i64 [ 0, %strided ], [ %next.{label}, %{label} ]
  %skip.{label} = mul i64 %n.{label}, %stride
  %from.{label} = getelementptr i8, ptr %from, i64 %skip.{label}
  %to.{label} = getelementptr {kind}, ptr %to, i64 %n.{label}
  %item.{label} = load {kind}, ptr %from.{label}, align 1
  store {kind} %item.{label}, ptr %to.{label}, align 1
  %next.{label} = add i64 %n.{label}, 1
  %more.{label} = icmp ult i64 %next.{label}, %count
  br i1 %more.{label}, label %{label}, label %done
"""


# The copy of a strided array to contiguous memory: items of 1, 2, 4, 8 and 16 bytes; strides may be
# zero or negative. Rows that lie nearer to each other than their items are copied a few columns at
# a time, or each item would come from a line of the cache that is gone when the next row reads it.
COPY_COLUMNS = 16
COPY_STRIDED = f"""\
define internal ptr @copy_rows(ptr %to, ptr %from, i64 %item, i64 %rows, i64 %stride, ptr %shape, \
ptr %strides) nounwind {{
entry:
  %columns = load i64, ptr %shape
  %step = load i64, ptr %strides
  %width.at = alloca i64
  %row.bytes = mul i64 %columns, %item
  %empty = icmp eq i64 %columns, 0
  br i1 %empty, label %end, label %part
part:
  %column = phi i64 [ 0, %entry ], [ %column.next, %part.done ]
  %left = sub i64 %columns, %column
  %width = call i64 @llvm.umin.i64(i64 %left, i64 {COPY_COLUMNS})
  store i64 %width, ptr %width.at
  %to.skip = mul i64 %column, %item
  %from.skip = mul i64 %column, %step
  %to.part = getelementptr i8, ptr %to, i64 %to.skip
  %from.part = getelementptr i8, ptr %from, i64 %from.skip
  br label %row
row:
  %n = phi i64 [ 0, %part ], [ %n.next, %row ]
  %to.n = phi ptr [ %to.part, %part ], [ %to.next, %row ]
  %from.n = phi ptr [ %from.part, %part ], [ %from.next, %row ]
  call ptr @copy_dim(ptr %to.n, ptr %from.n, i64 %item, i64 1, ptr %width.at, ptr %strides)
  %to.next = getelementptr i8, ptr %to.n, i64 %row.bytes
  %from.next = getelementptr i8, ptr %from.n, i64 %stride
  %n.next = add i64 %n, 1
  %more = icmp ult i64 %n.next, %rows
  br i1 %more, label %row, label %part.done
part.done:
  %column.next = add i64 %column, {COPY_COLUMNS}
  %is.more = icmp ult i64 %column.next, %columns
  br i1 %is.more, label %part, label %end
end:
  %bytes = mul i64 %row.bytes, %rows
  %to.end = getelementptr i8, ptr %to, i64 %bytes
  ret ptr %to.end
}}

define internal ptr @copy_dim(ptr %to, ptr %from, i64 %item, i64 %rank, ptr %shape, ptr %strides) \
nounwind {{
entry:
  %scalar = icmp eq i64 %rank, 0
  br i1 %scalar, label %one, label %any
one:
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %item, i1 false)
  %to.one = getelementptr i8, ptr %to, i64 %item
  ret ptr %to.one
any:
  %count = load i64, ptr %shape
  %stride = load i64, ptr %strides
  %empty = icmp eq i64 %count, 0
  br i1 %empty, label %nothing, label %depth
nothing:
  ret ptr %to
depth:
  %inner = icmp eq i64 %rank, 1
  br i1 %inner, label %row, label %outer
row:
  %bytes = mul i64 %count, %item
  %dense = icmp eq i64 %stride, %item
  br i1 %dense, label %block, label %strided
block:
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  br label %done
strided:
  switch i64 %item, label %done [ i64 1, label %items.1 i64 2, label %items.2
    i64 4, label %items.4 i64 8, label %items.8 i64 16, label %items.16 ]
{"".join(_copy_items(item_bytes) for item_bytes in (1, 2, 4, 8, 16))}\
done:
  %to.row = getelementptr i8, ptr %to, i64 %bytes
  ret ptr %to.row
outer:
  %rank.inner = sub i64 %rank, 1
  %shape.inner = getelementptr i64, ptr %shape, i64 1
  %strides.inner = getelementptr i64, ptr %strides, i64 1
  %is.plane = icmp eq i64 %rank, 2
  %step = load i64, ptr %strides.inner
  %step.size = call i64 @llvm.abs.i64(i64 %step, i1 false)
  %stride.size = call i64 @llvm.abs.i64(i64 %stride, i1 false)
  %is.near = icmp ult i64 %stride.size, %step.size
  %by.rows = and i1 %is.plane, %is.near
  br i1 %by.rows, label %rows, label %dims
rows:
  %to.rows = call ptr @copy_rows(ptr %to, ptr %from, i64 %item, i64 %count, i64 %stride, \
ptr %shape.inner, ptr %strides.inner)
  ret ptr %to.rows
dims:
  %n = phi i64 [ 0, %outer ], [ %n.next, %dims ]
  %to.n = phi ptr [ %to, %outer ], [ %to.next, %dims ]
  %skip = mul i64 %n, %stride
  %from.n = getelementptr i8, ptr %from, i64 %skip
  %to.next = call ptr @copy_dim(ptr %to.n, ptr %from.n, i64 %item, i64 %rank.inner, \
ptr %shape.inner, ptr %strides.inner)
  %n.next = add i64 %n, 1
  %more = icmp ult i64 %n.next, %count
  br i1 %more, label %dims, label %end
end:
  ret ptr %to.next
}}

define void @copy_strided(ptr %to, ptr %from, i64 %item, i64 %rank, ptr %shape, ptr %strides) {{
  %end = call ptr @copy_dim(ptr %to, ptr %from, i64 %item, i64 %rank, ptr %shape, ptr %strides)
  ret void
}}
"""


def executor_text() -> str:
    """The whole executor as LLVM IR."""
    scheduling = (RUN_PROGRAMS, CLAIM, WORKER, SPREAD, TAKE_SLOT, EXECUTE)
    return "\n".join((DECLARATIONS, *scheduling, NATIVE_CALL, COPY_STRIDED))


def executor_object() -> Object:
    """The executor as an object for `toolchain.link`; call it in a worker process."""
    return compile_module(executor_text(), EXPORTS, CPU)
