"""The copy of a strided array to contiguous memory as LLVM IR text, a part of the executor.

Items of 1, 2, 4, 8 and 16 bytes; strides may be zero or negative.
"""

from __future__ import annotations


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


COPY_STRIDED = f"""\
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
  br label %dims
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
