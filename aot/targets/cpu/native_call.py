"""The kernel that calls a native function of the user's, as LLVM IR text: part of the executor.

    aotc_native(args, x, y, z, grid, scratch)     KERNEL ABI 1; its one argument is a frame

The frame (`runtime/backends/frame.py`) was laid out by the runtime when the session opened; tensors
that change from call to call are patched into it. Each tile has a context and a message of its own.
The first tile that fails keeps its status and message in the frame and tells the session, which
then ends: the launches after it would read what was never written.
"""

from __future__ import annotations

from aotc.runtime.drivers.cpu import executor_abi as frame

NATIVE_CALL = f"""\
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define void @native(ptr %arguments, i32 %x, i32 %y, i32 %z, ptr %grid, ptr %scratch) nounwind {{
entry:
  %context = alloca [{frame.CONTEXT_BYTES} x i8], align 8
  %message = alloca [{frame.MESSAGE_BYTES} x i8], align 8
  %frame = load ptr, ptr %arguments
  %template = getelementptr i8, ptr %frame, i64 {frame.FRAME_CONTEXT}
  call void @llvm.memcpy.p0.p0.i64(ptr %context, ptr %template, i64 {frame.CONTEXT_BYTES}, i1 false)
  store i8 0, ptr %message
  %tile.at = getelementptr i8, ptr %context, i64 {frame.CONTEXT_TILE}
  %tiles.at = getelementptr i8, ptr %context, i64 {frame.CONTEXT_TILES}
  %workspace.at = getelementptr i8, ptr %context, i64 {frame.CONTEXT_WORKSPACE}
  %message.at = getelementptr i8, ptr %context, i64 {frame.CONTEXT_MESSAGE}
  %tiles = load i32, ptr %grid
  store i32 %x, ptr %tile.at
  store i32 %tiles, ptr %tiles.at
  store ptr %scratch, ptr %workspace.at
  store ptr %message, ptr %message.at
  %tensors.at = getelementptr i8, ptr %frame, i64 {frame.FRAME_TENSORS}
  %scalars.at = getelementptr i8, ptr %frame, i64 {frame.FRAME_SCALARS}
  %function = load ptr, ptr %frame
  %tensors = load ptr, ptr %tensors.at
  %scalars = load ptr, ptr %scalars.at
  %status = call i32 %function(ptr %context, ptr %tensors, ptr %scalars)
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %done, label %failed
failed:
  %status.at = getelementptr i8, ptr %frame, i64 {frame.FRAME_STATUS}
  %pair = cmpxchg ptr %status.at, i32 0, i32 %status acq_rel acquire, align 4
  %first = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %first, label %tell, label %done
tell:
  %kept = getelementptr i8, ptr %frame, i64 {frame.FRAME_MESSAGE}
  call void @llvm.memcpy.p0.p0.i64(ptr %kept, ptr %message, i64 {frame.MESSAGE_BYTES}, i1 false)
  %failed.at = getelementptr i8, ptr %frame, i64 {frame.FRAME_FAILED}
  %number.at = getelementptr i8, ptr %frame, i64 {frame.FRAME_NUMBER}
  %session.failed = load ptr, ptr %failed.at
  %number = load i32, ptr %number.at
  store atomic i32 %number, ptr %session.failed release, align 4
  br label %done
done:
  ret void
}}
"""
