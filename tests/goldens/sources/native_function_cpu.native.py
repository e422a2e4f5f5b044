# in0: *fp32
# out0: *fp32
# native  grid 10×1×1

{
 "backend": "custom",
 "function": "scale",
 "scalars": [
  [
   "real",
   "0x1.0000000000000p-1"
  ],
  [
   "whole",
   3
  ]
 ],
 "sha256": "abababababababababababababababababababababababababababababababab",
 "tensors": [
  [
   0,
   "f32",
   [
    640,
    64
   ],
   false
  ],
  [
   1,
   "f32",
   [
    640,
    64
   ],
   true
  ]
 ],
 "version": "1.2.0",
 "workspace_bytes": 128
}
