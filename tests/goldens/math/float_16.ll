define internal <16 x float> @aotc.acos.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x0)
  %v1 = fcmp ogt <16 x float> %v0, splat (float 0x3FE0000000000000)
  %v2 = fsub <16 x float> splat (float 0x3FF0000000000000), %v0
  %v3 = fmul <16 x float> %v2, splat (float 0x3FE0000000000000)
  %v4 = fmul <16 x float> %v0, %v0
  %v5 = select <16 x i1> %v1, <16 x float> %v3, <16 x float> %v4
  %v6 = call <16 x float> @llvm.sqrt.v16f32(<16 x float> %v5)
  %v7 = select <16 x i1> %v1, <16 x float> %v6, <16 x float> %v0
  %v8 = fmul <16 x float> %v7, %v5
  %v9 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3FA595C600000000), <16 x float> %v5, <16 x float> splat (float 0x3F98C3E500000000))
  %v10 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v9, <16 x float> %v5, <16 x float> splat (float 0x3FA747BB80000000))
  %v11 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v10, <16 x float> %v5, <16 x float> splat (float 0x3FB3302040000000))
  %v12 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v11, <16 x float> %v5, <16 x float> splat (float 0x3FC5555C80000000))
  %v13 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v8, <16 x float> %v12, <16 x float> %v7)
  %v14 = fcmp olt <16 x float> %x0, splat (float 0x0000000000000000)
  %v15 = fadd <16 x float> %v13, %v13
  %v16 = fsub <16 x float> splat (float 0x400921FB60000000), %v15
  %v17 = select <16 x i1> %v14, <16 x float> %v16, <16 x float> %v15
  %v18 = call <16 x float> @llvm.copysign.v16f32(<16 x float> %v13, <16 x float> %x0)
  %v19 = fsub <16 x float> %v18, splat (float 0xBE6777A5C0000000)
  %v20 = fsub <16 x float> splat (float 0x3FF921FB60000000), %v19
  %v21 = select <16 x i1> %v1, <16 x float> %v17, <16 x float> %v20
  ret <16 x float> %v21
}

define internal <16 x float> @aotc.asin.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x0)
  %v1 = fcmp ogt <16 x float> %v0, splat (float 0x3FE0000000000000)
  %v2 = fsub <16 x float> splat (float 0x3FF0000000000000), %v0
  %v3 = fmul <16 x float> %v2, splat (float 0x3FE0000000000000)
  %v4 = fmul <16 x float> %v0, %v0
  %v5 = select <16 x i1> %v1, <16 x float> %v3, <16 x float> %v4
  %v6 = call <16 x float> @llvm.sqrt.v16f32(<16 x float> %v5)
  %v7 = select <16 x i1> %v1, <16 x float> %v6, <16 x float> %v0
  %v8 = fmul <16 x float> %v7, %v5
  %v9 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3FA595C600000000), <16 x float> %v5, <16 x float> splat (float 0x3F98C3E500000000))
  %v10 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v9, <16 x float> %v5, <16 x float> splat (float 0x3FA747BB80000000))
  %v11 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v10, <16 x float> %v5, <16 x float> splat (float 0x3FB3302040000000))
  %v12 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v11, <16 x float> %v5, <16 x float> splat (float 0x3FC5555C80000000))
  %v13 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v8, <16 x float> %v12, <16 x float> %v7)
  %v14 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v13, <16 x float> splat (float 0xC000000000000000), <16 x float> splat (float 0x3FF921FB60000000))
  %v15 = select <16 x i1> %v1, <16 x float> %v14, <16 x float> %v13
  %v16 = call <16 x float> @llvm.copysign.v16f32(<16 x float> %v15, <16 x float> %x0)
  ret <16 x float> %v16
}

define internal <16 x float> @aotc.atan.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x0)
  %v1 = fcmp ogt <16 x float> %v0, splat (float 0x4003504F40000000)
  %v2 = fcmp ogt <16 x float> %v0, splat (float 0x3FDA8279A0000000)
  %v3 = fsub <16 x float> %v0, splat (float 0x3FF0000000000000)
  %v4 = select <16 x i1> %v2, <16 x float> %v3, <16 x float> %v0
  %v5 = select <16 x i1> %v1, <16 x float> splat (float 0xBFF0000000000000), <16 x float> %v4
  %v6 = fadd <16 x float> %v0, splat (float 0x3FF0000000000000)
  %v7 = select <16 x i1> %v2, <16 x float> %v6, <16 x float> splat (float 0x3FF0000000000000)
  %v8 = select <16 x i1> %v1, <16 x float> %v0, <16 x float> %v7
  %v9 = select <16 x i1> %v2, <16 x float> splat (float 0x3FE921FB60000000), <16 x float> splat (float 0x0000000000000000)
  %v10 = select <16 x i1> %v1, <16 x float> splat (float 0x3FF921FB60000000), <16 x float> %v9
  %v11 = fdiv <16 x float> %v5, %v8
  %v12 = fmul <16 x float> %v11, %v11
  %v13 = fmul <16 x float> %v12, %v11
  %v14 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3FB49E4EC0000000), <16 x float> %v12, <16 x float> splat (float 0xBFC1C37C40000000))
  %v15 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v14, <16 x float> %v12, <16 x float> splat (float 0x3FC9924D60000000))
  %v16 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v15, <16 x float> %v12, <16 x float> splat (float 0xBFD5554540000000))
  %v17 = fmul <16 x float> %v13, %v16
  %v18 = fadd <16 x float> %v11, %v17
  %v19 = fadd <16 x float> %v10, %v18
  %v20 = call <16 x float> @llvm.copysign.v16f32(<16 x float> %v19, <16 x float> %x0)
  ret <16 x float> %v20
}

define internal <16 x float> @aotc.atan2.v16f32(<16 x float> %x0, <16 x float> %x1) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x0)
  %v1 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x1)
  %v2 = fcmp ogt <16 x float> %v0, %v1
  %v3 = select <16 x i1> %v2, <16 x float> %v1, <16 x float> %v0
  %v4 = select <16 x i1> %v2, <16 x float> %v0, <16 x float> %v1
  %v5 = fcmp oeq <16 x float> %v4, splat (float 0x0000000000000000)
  %v6 = fdiv <16 x float> %v3, %v4
  %v7 = select <16 x i1> %v5, <16 x float> splat (float 0x0000000000000000), <16 x float> %v6
  %v8 = fcmp oeq <16 x float> %v3, splat (float 0x7FF0000000000000)
  %v9 = select <16 x i1> %v8, <16 x float> splat (float 0x3FF0000000000000), <16 x float> %v7
  %v10 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %v9)
  %v11 = fcmp ogt <16 x float> %v10, splat (float 0x4003504F40000000)
  %v12 = fcmp ogt <16 x float> %v10, splat (float 0x3FDA8279A0000000)
  %v13 = fsub <16 x float> %v10, splat (float 0x3FF0000000000000)
  %v14 = select <16 x i1> %v12, <16 x float> %v13, <16 x float> %v10
  %v15 = select <16 x i1> %v11, <16 x float> splat (float 0xBFF0000000000000), <16 x float> %v14
  %v16 = fadd <16 x float> %v10, splat (float 0x3FF0000000000000)
  %v17 = select <16 x i1> %v12, <16 x float> %v16, <16 x float> splat (float 0x3FF0000000000000)
  %v18 = select <16 x i1> %v11, <16 x float> %v10, <16 x float> %v17
  %v19 = select <16 x i1> %v12, <16 x float> splat (float 0x3FE921FB60000000), <16 x float> splat (float 0x0000000000000000)
  %v20 = select <16 x i1> %v11, <16 x float> splat (float 0x3FF921FB60000000), <16 x float> %v19
  %v21 = fdiv <16 x float> %v15, %v18
  %v22 = fmul <16 x float> %v21, %v21
  %v23 = fmul <16 x float> %v22, %v21
  %v24 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3FB49E4EC0000000), <16 x float> %v22, <16 x float> splat (float 0xBFC1C37C40000000))
  %v25 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v24, <16 x float> %v22, <16 x float> splat (float 0x3FC9924D60000000))
  %v26 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v25, <16 x float> %v22, <16 x float> splat (float 0xBFD5554540000000))
  %v27 = fmul <16 x float> %v23, %v26
  %v28 = fadd <16 x float> %v21, %v27
  %v29 = fadd <16 x float> %v20, %v28
  %v30 = call <16 x float> @llvm.copysign.v16f32(<16 x float> %v29, <16 x float> %v9)
  %v31 = fsub <16 x float> splat (float 0x3FF921FB60000000), %v30
  %v32 = select <16 x i1> %v2, <16 x float> %v31, <16 x float> %v30
  %v33 = call <16 x float> @llvm.copysign.v16f32(<16 x float> splat (float 0x3FF0000000000000), <16 x float> %x1)
  %v34 = fcmp olt <16 x float> %v33, splat (float 0x0000000000000000)
  %v35 = fsub <16 x float> splat (float 0x400921FB60000000), %v32
  %v36 = select <16 x i1> %v34, <16 x float> %v35, <16 x float> %v32
  %v37 = fcmp uno <16 x float> %x1, %x1
  %v38 = fcmp uno <16 x float> %x0, %x0
  %v39 = or <16 x i1> %v37, %v38
  %v40 = call <16 x float> @llvm.copysign.v16f32(<16 x float> %v36, <16 x float> %x0)
  %v41 = select <16 x i1> %v39, <16 x float> splat (float 0x7FF8000000000000), <16 x float> %v40
  ret <16 x float> %v41
}

define internal <16 x float> @aotc.ceil.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <16 x float> @llvm.ceil.v16f32(<16 x float> %x0)
  ret <16 x float> %v0
}

define internal <16 x float> @aotc.cos.v16f32(<16 x float> %given0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %x0 = freeze <16 x float> %given0
  %v0 = call <16 x float> @llvm.fma.v16f32(<16 x float> %x0, <16 x float> splat (float 0x3FE45F3060000000), <16 x float> splat (float 0x4168000000000000))
  %v1 = fsub <16 x float> %v0, splat (float 0x4168000000000000)
  %v2 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v1, <16 x float> splat (float 0xBFF921FB60000000), <16 x float> %x0)
  %v3 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v1, <16 x float> splat (float 0x3E6777A5C0000000), <16 x float> %v2)
  %v4 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v1, <16 x float> splat (float 0x3CDEE59DA0000000), <16 x float> %v3)
  %v5 = bitcast <16 x float> %v0 to <16 x i32>
  %v6 = sub <16 x i32> %v5, splat (i32 1262485504)
  %v7 = fmul <16 x float> %v4, %v4
  %v8 = fmul <16 x float> %v7, %v4
  %v9 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0xBF29954080000000), <16 x float> %v7, <16 x float> splat (float 0x3F81107780000000))
  %v10 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v9, <16 x float> %v7, <16 x float> splat (float 0xBFC5555460000000))
  %v11 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v8, <16 x float> %v10, <16 x float> %v4)
  %v12 = fmul <16 x float> %v7, %v7
  %v13 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3EF99E0EC0000000), <16 x float> %v7, <16 x float> splat (float 0xBF56C0C1A0000000))
  %v14 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v13, <16 x float> %v7, <16 x float> splat (float 0x3FA55554A0000000))
  %v15 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v7, <16 x float> splat (float 0xBFE0000000000000), <16 x float> splat (float 0x3FF0000000000000))
  %v16 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v12, <16 x float> %v14, <16 x float> %v15)
  %v17 = and <16 x i32> %v6, splat (i32 1)
  %v18 = icmp eq <16 x i32> %v17, splat (i32 1)
  %v19 = select <16 x i1> %v18, <16 x float> %v16, <16 x float> %v11
  %v20 = select <16 x i1> %v18, <16 x float> %v11, <16 x float> %v16
  %v21 = and <16 x i32> %v6, splat (i32 2)
  %v22 = shl <16 x i32> %v21, splat (i32 30)
  %v23 = bitcast <16 x float> %v19 to <16 x i32>
  %v24 = xor <16 x i32> %v23, %v22
  %v25 = bitcast <16 x i32> %v24 to <16 x float>
  %v26 = add <16 x i32> %v6, splat (i32 1)
  %v27 = and <16 x i32> %v26, splat (i32 2)
  %v28 = shl <16 x i32> %v27, splat (i32 30)
  %v29 = bitcast <16 x float> %v20 to <16 x i32>
  %v30 = xor <16 x i32> %v29, %v28
  %v31 = bitcast <16 x i32> %v30 to <16 x float>
  %v32 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x0)
  %v33 = fcmp ogt <16 x float> %v32, splat (float 0x40F86A0000000000)
  %v34 = call i1 @llvm.vector.reduce.or.v16i1(<16 x i1> %v33)
  br i1 %v34, label %rare35, label %after35
rare35:
  %v37 = call <16 x float> @aotc.cos.large.v16f32(<16 x float> %x0)
  %v38 = select <16 x i1> %v33, <16 x float> %v37, <16 x float> %v31
  br label %after35
after35:
  %v41 = phi <16 x float> [ %v31, %entry ], [ %v38, %rare35 ]
  ret <16 x float> %v41
}

define internal float @aotc.cos.large.f32(float %x) noinline cold nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
  %v0 = bitcast float %x to i32
  %v1 = lshr i32 %v0, 23
  %v2 = and i32 %v1, 255
  %v3 = sub i32 %v2, 150
  %v4 = and i32 %v0, 8388607
  %v5 = or i32 %v4, 8388608
  %v6 = zext i32 %v5 to i128
  %v7 = sub i32 106, %v3
  %v8 = zext i32 %v7 to i256
  %v9 = lshr i256 1023008531944964742713634320094839494465182657242203849507326, %v8
  %v10 = trunc i256 %v9 to i128
  %v11 = mul i128 %v6, %v10
  %v12 = shl i128 %v11, 32
  %v13 = add i128 %v12, 42535295865117307932921825928971026432
  %v14 = lshr i128 %v13, 126
  %v15 = shl i128 %v14, 126
  %v16 = sub i128 %v12, %v15
  %v17 = lshr i128 %v16, 64
  %v18 = trunc i128 %v17 to i64
  %v19 = sitofp i64 %v18 to double
  %v20 = fmul double %v19, 0x3C1921FB54442D18
  %v21 = fptrunc double %v20 to float
  %v22 = trunc i128 %v14 to i32
  %v23 = icmp slt i32 %v0, 0
  %v24 = fneg float %v21
  %v25 = select i1 %v23, float %v24, float %v21
  %v26 = sub i32 0, %v22
  %v27 = select i1 %v23, i32 %v26, i32 %v22
  %v28 = fmul float %v25, %v25
  %v29 = fmul float %v28, %v25
  %v30 = call float @llvm.fma.f32(float 0xBF29954080000000, float %v28, float 0x3F81107780000000)
  %v31 = call float @llvm.fma.f32(float %v30, float %v28, float 0xBFC5555460000000)
  %v32 = call float @llvm.fma.f32(float %v29, float %v31, float %v25)
  %v33 = fmul float %v28, %v28
  %v34 = call float @llvm.fma.f32(float 0x3EF99E0EC0000000, float %v28, float 0xBF56C0C1A0000000)
  %v35 = call float @llvm.fma.f32(float %v34, float %v28, float 0x3FA55554A0000000)
  %v36 = call float @llvm.fma.f32(float %v28, float 0xBFE0000000000000, float 0x3FF0000000000000)
  %v37 = call float @llvm.fma.f32(float %v33, float %v35, float %v36)
  %v38 = and i32 %v27, 1
  %v39 = icmp eq i32 %v38, 1
  %v40 = select i1 %v39, float %v37, float %v32
  %v41 = select i1 %v39, float %v32, float %v37
  %v42 = and i32 %v27, 2
  %v43 = shl i32 %v42, 30
  %v44 = bitcast float %v40 to i32
  %v45 = xor i32 %v44, %v43
  %v46 = bitcast i32 %v45 to float
  %v47 = add i32 %v27, 1
  %v48 = and i32 %v47, 2
  %v49 = shl i32 %v48, 30
  %v50 = bitcast float %v41 to i32
  %v51 = xor i32 %v50, %v49
  %v52 = bitcast i32 %v51 to float
  %v53 = call float @llvm.fabs.f32(float %x)
  %v54 = fcmp olt float %v53, 0x7FF0000000000000
  %v55 = fsub float %x, %x
  %v56 = select i1 %v54, float %v52, float %v55
  ret float %v56
}

define internal <16 x float> @aotc.cos.large.v16f32(<16 x float> %x) noinline cold nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
  %a0 = extractelement <16 x float> %x, i32 0
  %b0 = call float @aotc.cos.large.f32(float %a0)
  %c0 = insertelement <16 x float> poison, float %b0, i32 0
  %a1 = extractelement <16 x float> %x, i32 1
  %b1 = call float @aotc.cos.large.f32(float %a1)
  %c1 = insertelement <16 x float> %c0, float %b1, i32 1
  %a2 = extractelement <16 x float> %x, i32 2
  %b2 = call float @aotc.cos.large.f32(float %a2)
  %c2 = insertelement <16 x float> %c1, float %b2, i32 2
  %a3 = extractelement <16 x float> %x, i32 3
  %b3 = call float @aotc.cos.large.f32(float %a3)
  %c3 = insertelement <16 x float> %c2, float %b3, i32 3
  %a4 = extractelement <16 x float> %x, i32 4
  %b4 = call float @aotc.cos.large.f32(float %a4)
  %c4 = insertelement <16 x float> %c3, float %b4, i32 4
  %a5 = extractelement <16 x float> %x, i32 5
  %b5 = call float @aotc.cos.large.f32(float %a5)
  %c5 = insertelement <16 x float> %c4, float %b5, i32 5
  %a6 = extractelement <16 x float> %x, i32 6
  %b6 = call float @aotc.cos.large.f32(float %a6)
  %c6 = insertelement <16 x float> %c5, float %b6, i32 6
  %a7 = extractelement <16 x float> %x, i32 7
  %b7 = call float @aotc.cos.large.f32(float %a7)
  %c7 = insertelement <16 x float> %c6, float %b7, i32 7
  %a8 = extractelement <16 x float> %x, i32 8
  %b8 = call float @aotc.cos.large.f32(float %a8)
  %c8 = insertelement <16 x float> %c7, float %b8, i32 8
  %a9 = extractelement <16 x float> %x, i32 9
  %b9 = call float @aotc.cos.large.f32(float %a9)
  %c9 = insertelement <16 x float> %c8, float %b9, i32 9
  %a10 = extractelement <16 x float> %x, i32 10
  %b10 = call float @aotc.cos.large.f32(float %a10)
  %c10 = insertelement <16 x float> %c9, float %b10, i32 10
  %a11 = extractelement <16 x float> %x, i32 11
  %b11 = call float @aotc.cos.large.f32(float %a11)
  %c11 = insertelement <16 x float> %c10, float %b11, i32 11
  %a12 = extractelement <16 x float> %x, i32 12
  %b12 = call float @aotc.cos.large.f32(float %a12)
  %c12 = insertelement <16 x float> %c11, float %b12, i32 12
  %a13 = extractelement <16 x float> %x, i32 13
  %b13 = call float @aotc.cos.large.f32(float %a13)
  %c13 = insertelement <16 x float> %c12, float %b13, i32 13
  %a14 = extractelement <16 x float> %x, i32 14
  %b14 = call float @aotc.cos.large.f32(float %a14)
  %c14 = insertelement <16 x float> %c13, float %b14, i32 14
  %a15 = extractelement <16 x float> %x, i32 15
  %b15 = call float @aotc.cos.large.f32(float %a15)
  %c15 = insertelement <16 x float> %c14, float %b15, i32 15
  ret <16 x float> %c15
}

define internal <16 x float> @aotc.cosh.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x0)
  %v1 = fcmp ogt <16 x float> %v0, splat (float 0x4056800000000000)
  %v2 = select <16 x i1> %v1, <16 x float> splat (float 0x4056800000000000), <16 x float> %v0
  %v3 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v2, <16 x float> splat (float 0x3FF7154760000000), <16 x float> splat (float 0x4168000000000000))
  %v4 = fsub <16 x float> %v3, splat (float 0x4168000000000000)
  %v5 = bitcast <16 x float> %v3 to <16 x i32>
  %v6 = sub <16 x i32> %v5, splat (i32 1262485504)
  %v7 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v4, <16 x float> splat (float 0xBFE6300000000000), <16 x float> %v2)
  %v8 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v4, <16 x float> splat (float 0x3F2BD01060000000), <16 x float> %v7)
  %v9 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3F80FA0D80000000), <16 x float> %v8, <16 x float> splat (float 0x3FA573A200000000))
  %v10 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v9, <16 x float> %v8, <16 x float> splat (float 0x3FC555A7E0000000))
  %v11 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v10, <16 x float> %v8, <16 x float> splat (float 0x3FDFFFDC60000000))
  %v12 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v11, <16 x float> %v8, <16 x float> splat (float 0x3FEFFFFF60000000))
  %v13 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v8, <16 x float> %v12, <16 x float> splat (float 0x3FF0000000000000))
  %v14 = fsub <16 x float> %v4, splat (float 0x3FF0000000000000)
  %v15 = call <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float> %v13, <16 x float> %v14, <16 x float> %v13, i16 -1, i32 4)
  %v16 = fcmp uge <16 x float> %v0, splat (float 0xC059FEB860000000)
  %v17 = select <16 x i1> %v16, <16 x float> %v15, <16 x float> splat (float 0x0000000000000000)
  %v18 = fdiv <16 x float> splat (float 0x3FD0000000000000), %v17
  %v19 = fadd <16 x float> %v17, %v18
  ret <16 x float> %v19
}

define internal <16 x float> @aotc.erf.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x0)
  %v1 = fcmp ogt <16 x float> %v0, splat (float 0x400F70A3E0000000)
  %v2 = select <16 x i1> %v1, <16 x float> splat (float 0x400F70A3E0000000), <16 x float> %v0
  %v3 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3EEB4D3440000000), <16 x float> %v2, <16 x float> splat (float 0xBF25DB13E0000000))
  %v4 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v3, <16 x float> %v2, <16 x float> splat (float 0x3F4D9318A0000000))
  %v5 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v4, <16 x float> %v2, <16 x float> splat (float 0xBF638CA240000000))
  %v6 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v5, <16 x float> %v2, <16 x float> splat (float 0x3F2BFC2FA0000000))
  %v7 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v6, <16 x float> %v2, <16 x float> splat (float 0x3F9C4DF300000000))
  %v8 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v7, <16 x float> %v2, <16 x float> splat (float 0xBFC2FAD080000000))
  %v9 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v8, <16 x float> %v2, <16 x float> splat (float 0xBFED63EBE0000000))
  %v10 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v9, <16 x float> %v2, <16 x float> splat (float 0xBFFA0BE840000000))
  %v11 = fmul <16 x float> %v2, %v10
  %v12 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v11, <16 x float> splat (float 0x3FF0000000000000), <16 x float> splat (float 0x4168000000000000))
  %v13 = fsub <16 x float> %v12, splat (float 0x4168000000000000)
  %v14 = bitcast <16 x float> %v12 to <16 x i32>
  %v15 = sub <16 x i32> %v14, splat (i32 1262485504)
  %v16 = fsub <16 x float> %v11, %v13
  %v17 = add <16 x i32> %v15, splat (i32 127)
  %v18 = shl <16 x i32> %v17, splat (i32 23)
  %v19 = bitcast <16 x i32> %v18 to <16 x float>
  %v20 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3F24447B80000000), <16 x float> %v16, <16 x float> splat (float 0x3F55F09600000000))
  %v21 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v20, <16 x float> %v16, <16 x float> splat (float 0x3F83B2A280000000))
  %v22 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v21, <16 x float> %v16, <16 x float> splat (float 0x3FAC6AF7A0000000))
  %v23 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v22, <16 x float> %v16, <16 x float> splat (float 0x3FCEBFBE00000000))
  %v24 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v23, <16 x float> %v16, <16 x float> splat (float 0x3FE62E4300000000))
  %v25 = fmul <16 x float> %v16, %v24
  %v26 = fsub <16 x float> %v19, splat (float 0x3FF0000000000000)
  %v27 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v19, <16 x float> %v25, <16 x float> %v26)
  %v28 = fneg <16 x float> %v27
  %v29 = call <16 x float> @llvm.copysign.v16f32(<16 x float> %v28, <16 x float> %x0)
  ret <16 x float> %v29
}

define internal <16 x float> @aotc.erfc.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = fmul <16 x float> %x0, %x0
  %v1 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3F733ECF20000000), <16 x float> %v0, <16 x float> splat (float 0xBF9B63A940000000))
  %v2 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v1, <16 x float> %v0, <16 x float> splat (float 0x3FBCE23620000000))
  %v3 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v2, <16 x float> %v0, <16 x float> splat (float 0xBFD81272E0000000))
  %v4 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v3, <16 x float> %v0, <16 x float> splat (float 0x3FC06EBA80000000))
  %v5 = call <16 x float> @llvm.fma.v16f32(<16 x float> %x0, <16 x float> %v4, <16 x float> %x0)
  %v6 = fsub <16 x float> splat (float 0x3FF0000000000000), %v5
  %v7 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x0)
  %v8 = fcmp ogt <16 x float> %v7, splat (float 0x4024333340000000)
  %v9 = select <16 x i1> %v8, <16 x float> splat (float 0x4024333340000000), <16 x float> %v7
  %v10 = fsub <16 x float> %v9, splat (float 0x3FFE000000000000)
  %v11 = fadd <16 x float> %v9, splat (float 0x3FFE000000000000)
  %v12 = fdiv <16 x float> %v10, %v11
  %v13 = fmul <16 x float> %v9, %v9
  %v14 = fneg <16 x float> %v13
  %v15 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v14, <16 x float> splat (float 0x3FF7154760000000), <16 x float> splat (float 0x4168000000000000))
  %v16 = fsub <16 x float> %v15, splat (float 0x4168000000000000)
  %v17 = bitcast <16 x float> %v15 to <16 x i32>
  %v18 = sub <16 x i32> %v17, splat (i32 1262485504)
  %v19 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v16, <16 x float> splat (float 0xBFE6300000000000), <16 x float> %v14)
  %v20 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v16, <16 x float> splat (float 0x3F2BD01060000000), <16 x float> %v19)
  %v21 = fneg <16 x float> %v13
  %v22 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v9, <16 x float> %v9, <16 x float> %v21)
  %v23 = fsub <16 x float> %v20, %v22
  %v24 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3F80FA0D80000000), <16 x float> %v23, <16 x float> splat (float 0x3FA573A200000000))
  %v25 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v24, <16 x float> %v23, <16 x float> splat (float 0x3FC555A7E0000000))
  %v26 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v25, <16 x float> %v23, <16 x float> splat (float 0x3FDFFFDC60000000))
  %v27 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v26, <16 x float> %v23, <16 x float> splat (float 0x3FEFFFFF60000000))
  %v28 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v23, <16 x float> %v27, <16 x float> splat (float 0x3FF0000000000000))
  %v29 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0xBF425B1760000000), <16 x float> %v12, <16 x float> splat (float 0xBF49AF5240000000))
  %v30 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v29, <16 x float> %v12, <16 x float> splat (float 0x3F681CA060000000))
  %v31 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v30, <16 x float> %v12, <16 x float> splat (float 0x3F79CE2D20000000))
  %v32 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v31, <16 x float> %v12, <16 x float> splat (float 0xBF8F771400000000))
  %v33 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v32, <16 x float> %v12, <16 x float> splat (float 0xBFA2C39DE0000000))
  %v34 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v33, <16 x float> %v12, <16 x float> splat (float 0x3FC44D2E00000000))
  %v35 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v34, <16 x float> %v12, <16 x float> splat (float 0xBFC79D6040000000))
  %v36 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v35, <16 x float> %v12, <16 x float> splat (float 0xBFB4D9C5E0000000))
  %v37 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v36, <16 x float> %v12, <16 x float> splat (float 0x3FF47A07A0000000))
  %v38 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v9, <16 x float> splat (float 0x4000000000000000), <16 x float> splat (float 0x3FF0000000000000))
  %v39 = fdiv <16 x float> %v37, %v38
  %v40 = fmul <16 x float> %v28, %v39
  %v41 = call <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float> %v40, <16 x float> %v16, <16 x float> %v40, i16 -1, i32 4)
  %v42 = fcmp olt <16 x float> %x0, splat (float 0x0000000000000000)
  %v43 = fsub <16 x float> splat (float 0x4000000000000000), %v41
  %v44 = select <16 x i1> %v42, <16 x float> %v43, <16 x float> %v41
  %v45 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x0)
  %v46 = fcmp olt <16 x float> %v45, splat (float 0x3FE0000000000000)
  %v47 = select <16 x i1> %v46, <16 x float> %v6, <16 x float> %v44
  ret <16 x float> %v47
}

define internal <16 x float> @aotc.exp.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = fcmp ogt <16 x float> %x0, splat (float 0x4056800000000000)
  %v1 = select <16 x i1> %v0, <16 x float> splat (float 0x4056800000000000), <16 x float> %x0
  %v2 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v1, <16 x float> splat (float 0x3FF7154760000000), <16 x float> splat (float 0x4168000000000000))
  %v3 = fsub <16 x float> %v2, splat (float 0x4168000000000000)
  %v4 = bitcast <16 x float> %v2 to <16 x i32>
  %v5 = sub <16 x i32> %v4, splat (i32 1262485504)
  %v6 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v3, <16 x float> splat (float 0xBFE6300000000000), <16 x float> %v1)
  %v7 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v3, <16 x float> splat (float 0x3F2BD01060000000), <16 x float> %v6)
  %v8 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3F80FA0D80000000), <16 x float> %v7, <16 x float> splat (float 0x3FA573A200000000))
  %v9 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v8, <16 x float> %v7, <16 x float> splat (float 0x3FC555A7E0000000))
  %v10 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v9, <16 x float> %v7, <16 x float> splat (float 0x3FDFFFDC60000000))
  %v11 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v10, <16 x float> %v7, <16 x float> splat (float 0x3FEFFFFF60000000))
  %v12 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v7, <16 x float> %v11, <16 x float> splat (float 0x3FF0000000000000))
  %v13 = call <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float> %v12, <16 x float> %v3, <16 x float> %v12, i16 -1, i32 4)
  %v14 = fcmp uge <16 x float> %x0, splat (float 0xC059FEB860000000)
  %v15 = select <16 x i1> %v14, <16 x float> %v13, <16 x float> splat (float 0x0000000000000000)
  ret <16 x float> %v15
}

define internal <16 x float> @aotc.exp2.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = fcmp ogt <16 x float> %x0, splat (float 0x4060200000000000)
  %v1 = select <16 x i1> %v0, <16 x float> splat (float 0x4060200000000000), <16 x float> %x0
  %v2 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v1, <16 x float> splat (float 0x3FF0000000000000), <16 x float> splat (float 0x4168000000000000))
  %v3 = fsub <16 x float> %v2, splat (float 0x4168000000000000)
  %v4 = bitcast <16 x float> %v2 to <16 x i32>
  %v5 = sub <16 x i32> %v4, splat (i32 1262485504)
  %v6 = fsub <16 x float> %v1, %v3
  %v7 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3F24447B80000000), <16 x float> %v6, <16 x float> splat (float 0x3F55F09600000000))
  %v8 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v7, <16 x float> %v6, <16 x float> splat (float 0x3F83B2A280000000))
  %v9 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v8, <16 x float> %v6, <16 x float> splat (float 0x3FAC6AF7A0000000))
  %v10 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v9, <16 x float> %v6, <16 x float> splat (float 0x3FCEBFBE00000000))
  %v11 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v10, <16 x float> %v6, <16 x float> splat (float 0x3FE62E4300000000))
  %v12 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v6, <16 x float> %v11, <16 x float> splat (float 0x3FF0000000000000))
  %v13 = call <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float> %v12, <16 x float> %v3, <16 x float> %v12, i16 -1, i32 4)
  %v14 = fcmp uge <16 x float> %x0, splat (float 0xC062C00000000000)
  %v15 = select <16 x i1> %v14, <16 x float> %v13, <16 x float> splat (float 0x0000000000000000)
  ret <16 x float> %v15
}

define internal <16 x float> @aotc.expm1.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = fcmp ogt <16 x float> %x0, splat (float 0x4056400000000000)
  %v1 = select <16 x i1> %v0, <16 x float> splat (float 0x4056400000000000), <16 x float> %x0
  %v2 = fcmp olt <16 x float> %v1, splat (float 0xC032000000000000)
  %v3 = select <16 x i1> %v2, <16 x float> splat (float 0xC032000000000000), <16 x float> %v1
  %v4 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v3, <16 x float> splat (float 0x3FF7154760000000), <16 x float> splat (float 0x4168000000000000))
  %v5 = fsub <16 x float> %v4, splat (float 0x4168000000000000)
  %v6 = bitcast <16 x float> %v4 to <16 x i32>
  %v7 = sub <16 x i32> %v6, splat (i32 1262485504)
  %v8 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v5, <16 x float> splat (float 0xBFE6300000000000), <16 x float> %v3)
  %v9 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v5, <16 x float> splat (float 0x3F2BD01060000000), <16 x float> %v8)
  %v10 = fmul <16 x float> %v9, %v9
  %v11 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3F56B97A40000000), <16 x float> %v9, <16 x float> splat (float 0x3F81225380000000))
  %v12 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v11, <16 x float> %v9, <16 x float> splat (float 0x3FA5556F60000000))
  %v13 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v12, <16 x float> %v9, <16 x float> splat (float 0x3FC5554B40000000))
  %v14 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v13, <16 x float> %v9, <16 x float> splat (float 0x3FDFFFFFE0000000))
  %v15 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v10, <16 x float> %v14, <16 x float> %v9)
  %v16 = sub <16 x i32> %v7, splat (i32 1)
  %v17 = add <16 x i32> %v16, splat (i32 127)
  %v18 = shl <16 x i32> %v17, splat (i32 23)
  %v19 = bitcast <16 x i32> %v18 to <16 x float>
  %v20 = fsub <16 x float> %v19, splat (float 0x3FE0000000000000)
  %v21 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v19, <16 x float> %v15, <16 x float> %v20)
  %v22 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x0)
  %v23 = fcmp olt <16 x float> %v22, splat (float 0x39B4484C00000000)
  %v24 = fadd <16 x float> %v21, %v21
  %v25 = select <16 x i1> %v23, <16 x float> %x0, <16 x float> %v24
  ret <16 x float> %v25
}

define internal <16 x float> @aotc.floor.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <16 x float> @llvm.floor.v16f32(<16 x float> %x0)
  ret <16 x float> %v0
}

define internal <16 x float> @aotc.fmod.v16f32(<16 x float> %given0, <16 x float> %given1) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %x0 = freeze <16 x float> %given0
  %x1 = freeze <16 x float> %given1
  %v0 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x0)
  %v1 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x1)
  %v2 = fdiv <16 x float> %v0, %v1
  %v3 = call <16 x float> @llvm.trunc.v16f32(<16 x float> %v2)
  %v4 = fneg <16 x float> %v1
  %v5 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v3, <16 x float> %v4, <16 x float> %v0)
  %v6 = fcmp ogt <16 x float> %v2, splat (float 0x4160000000000000)
  %v7 = call i1 @llvm.vector.reduce.or.v16i1(<16 x i1> %v6)
  br i1 %v7, label %again8, label %after8
again8:
  %v10 = phi <16 x float> [ %v0, %entry ], [ %v24, %again8 ]
  %v11 = fdiv <16 x float> %v10, %v1
  %v12 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %v11)
  %v13 = fcmp oeq <16 x float> %v12, splat (float 0x7FF0000000000000)
  %v14 = fmul <16 x float> %v1, splat (float 0x4630000000000000)
  %v15 = select <16 x i1> %v13, <16 x float> %v14, <16 x float> %v1
  %v16 = fdiv <16 x float> %v10, %v15
  %v17 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %v16)
  %v18 = fcmp oeq <16 x float> %v17, splat (float 0x7FF0000000000000)
  %v19 = fmul <16 x float> %v15, splat (float 0x4630000000000000)
  %v20 = select <16 x i1> %v18, <16 x float> %v19, <16 x float> %v15
  %v21 = fdiv <16 x float> %v10, %v20
  %v22 = call <16 x float> @llvm.trunc.v16f32(<16 x float> %v21)
  %v23 = fneg <16 x float> %v20
  %v24 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v22, <16 x float> %v23, <16 x float> %v10)
  %v25 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %v24)
  %v26 = fcmp oge <16 x float> %v25, %v1
  %v27 = call i1 @llvm.vector.reduce.or.v16i1(<16 x i1> %v26)
  br i1 %v27, label %again8, label %after8
after8:
  %v30 = phi <16 x float> [ %v5, %entry ], [ %v24, %again8 ]
  %v31 = fcmp olt <16 x float> %v30, splat (float 0x0000000000000000)
  %v32 = fadd <16 x float> %v30, %v1
  %v33 = select <16 x i1> %v31, <16 x float> %v32, <16 x float> %v30
  %v34 = fcmp olt <16 x float> %v0, %v1
  %v35 = select <16 x i1> %v34, <16 x float> %v0, <16 x float> %v33
  %v36 = call <16 x float> @llvm.copysign.v16f32(<16 x float> %v35, <16 x float> %x0)
  ret <16 x float> %v36
}

define internal <16 x float> @aotc.log.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = fcmp olt <16 x float> %x0, splat (float 0x3810000000000000)
  %v1 = fmul <16 x float> %x0, splat (float 0x4160000000000000)
  %v2 = select <16 x i1> %v0, <16 x float> %v1, <16 x float> %x0
  %v3 = bitcast <16 x float> %v2 to <16 x i32>
  %v4 = sub <16 x i32> %v3, splat (i32 1060439283)
  %v5 = ashr <16 x i32> %v4, splat (i32 23)
  %v6 = shl <16 x i32> %v5, splat (i32 23)
  %v7 = sub <16 x i32> %v3, %v6
  %v8 = bitcast <16 x i32> %v7 to <16 x float>
  %v9 = fsub <16 x float> %v8, splat (float 0x3FF0000000000000)
  %v10 = sitofp <16 x i32> %v5 to <16 x float>
  %v11 = fsub <16 x float> %v10, splat (float 0x4037000000000000)
  %v12 = select <16 x i1> %v0, <16 x float> %v11, <16 x float> %v10
  %v13 = fmul <16 x float> %v9, %v9
  %v14 = fmul <16 x float> %v13, %v9
  %v15 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0xBFB38C9680000000), <16 x float> %v9, <16 x float> splat (float 0x3FC055EAC0000000))
  %v16 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v15, <16 x float> %v9, <16 x float> splat (float 0xBFC0D82460000000))
  %v17 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v16, <16 x float> %v9, <16 x float> splat (float 0x3FC22D9300000000))
  %v18 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v17, <16 x float> %v9, <16 x float> splat (float 0xBFC54728A0000000))
  %v19 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v18, <16 x float> %v9, <16 x float> splat (float 0x3FC99A01C0000000))
  %v20 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v19, <16 x float> %v9, <16 x float> splat (float 0xBFD0002260000000))
  %v21 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v20, <16 x float> %v9, <16 x float> splat (float 0x3FD5555540000000))
  %v22 = fmul <16 x float> %v14, %v21
  %v23 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v12, <16 x float> splat (float 0xBF2BD01060000000), <16 x float> %v22)
  %v24 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v13, <16 x float> splat (float 0xBFE0000000000000), <16 x float> %v23)
  %v25 = fadd <16 x float> %v9, %v24
  %v26 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v12, <16 x float> splat (float 0x3FE6300000000000), <16 x float> %v25)
  %v27 = fcmp olt <16 x float> %x0, splat (float 0x7FF0000000000000)
  %v28 = select <16 x i1> %v27, <16 x float> %v26, <16 x float> %x0
  %v29 = fcmp olt <16 x float> %x0, splat (float 0x0000000000000000)
  %v30 = select <16 x i1> %v29, <16 x float> splat (float 0x7FF8000000000000), <16 x float> %v28
  %v31 = fcmp oeq <16 x float> %x0, splat (float 0x0000000000000000)
  %v32 = select <16 x i1> %v31, <16 x float> splat (float 0xFFF0000000000000), <16 x float> %v30
  ret <16 x float> %v32
}

define internal <16 x float> @aotc.log1p.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = fadd <16 x float> %x0, splat (float 0x3FF0000000000000)
  %v1 = fsub <16 x float> %v0, splat (float 0x3FF0000000000000)
  %v2 = fsub <16 x float> %x0, %v1
  %v3 = bitcast <16 x float> %v0 to <16 x i32>
  %v4 = sub <16 x i32> %v3, splat (i32 1060439283)
  %v5 = ashr <16 x i32> %v4, splat (i32 23)
  %v6 = shl <16 x i32> %v5, splat (i32 23)
  %v7 = sub <16 x i32> %v3, %v6
  %v8 = bitcast <16 x i32> %v7 to <16 x float>
  %v9 = fsub <16 x float> %v8, splat (float 0x3FF0000000000000)
  %v10 = fmul <16 x float> %v2, splat (float 0x3FE0000000000000)
  %v11 = sub <16 x i32> splat (i32 1), %v5
  %v12 = add <16 x i32> %v11, splat (i32 127)
  %v13 = shl <16 x i32> %v12, splat (i32 23)
  %v14 = bitcast <16 x i32> %v13 to <16 x float>
  %v15 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v10, <16 x float> %v14, <16 x float> %v9)
  %v16 = sitofp <16 x i32> %v5 to <16 x float>
  %v17 = fmul <16 x float> %v15, %v15
  %v18 = fmul <16 x float> %v17, %v15
  %v19 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0xBFB38C9680000000), <16 x float> %v15, <16 x float> splat (float 0x3FC055EAC0000000))
  %v20 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v19, <16 x float> %v15, <16 x float> splat (float 0xBFC0D82460000000))
  %v21 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v20, <16 x float> %v15, <16 x float> splat (float 0x3FC22D9300000000))
  %v22 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v21, <16 x float> %v15, <16 x float> splat (float 0xBFC54728A0000000))
  %v23 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v22, <16 x float> %v15, <16 x float> splat (float 0x3FC99A01C0000000))
  %v24 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v23, <16 x float> %v15, <16 x float> splat (float 0xBFD0002260000000))
  %v25 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v24, <16 x float> %v15, <16 x float> splat (float 0x3FD5555540000000))
  %v26 = fmul <16 x float> %v18, %v25
  %v27 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v16, <16 x float> splat (float 0xBF2BD01060000000), <16 x float> %v26)
  %v28 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v17, <16 x float> splat (float 0xBFE0000000000000), <16 x float> %v27)
  %v29 = fadd <16 x float> %v15, %v28
  %v30 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v16, <16 x float> splat (float 0x3FE6300000000000), <16 x float> %v29)
  %v31 = fcmp olt <16 x float> %v0, splat (float 0x7FF0000000000000)
  %v32 = select <16 x i1> %v31, <16 x float> %v30, <16 x float> %v0
  %v33 = fcmp olt <16 x float> %v0, splat (float 0x0000000000000000)
  %v34 = select <16 x i1> %v33, <16 x float> splat (float 0x7FF8000000000000), <16 x float> %v32
  %v35 = fcmp oeq <16 x float> %v0, splat (float 0x0000000000000000)
  %v36 = select <16 x i1> %v35, <16 x float> splat (float 0xFFF0000000000000), <16 x float> %v34
  %v37 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x0)
  %v38 = fcmp olt <16 x float> %v37, splat (float 0x39B4484C00000000)
  %v39 = select <16 x i1> %v38, <16 x float> %x0, <16 x float> %v36
  ret <16 x float> %v39
}

define internal <16 x float> @aotc.log2.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = fcmp olt <16 x float> %x0, splat (float 0x3810000000000000)
  %v1 = fmul <16 x float> %x0, splat (float 0x4160000000000000)
  %v2 = select <16 x i1> %v0, <16 x float> %v1, <16 x float> %x0
  %v3 = bitcast <16 x float> %v2 to <16 x i32>
  %v4 = sub <16 x i32> %v3, splat (i32 1060439283)
  %v5 = ashr <16 x i32> %v4, splat (i32 23)
  %v6 = shl <16 x i32> %v5, splat (i32 23)
  %v7 = sub <16 x i32> %v3, %v6
  %v8 = bitcast <16 x i32> %v7 to <16 x float>
  %v9 = fsub <16 x float> %v8, splat (float 0x3FF0000000000000)
  %v10 = sitofp <16 x i32> %v5 to <16 x float>
  %v11 = fsub <16 x float> %v10, splat (float 0x4037000000000000)
  %v12 = select <16 x i1> %v0, <16 x float> %v11, <16 x float> %v10
  %v13 = fmul <16 x float> %v9, %v9
  %v14 = fmul <16 x float> %v13, %v9
  %v15 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0xBFB38C9680000000), <16 x float> %v9, <16 x float> splat (float 0x3FC055EAC0000000))
  %v16 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v15, <16 x float> %v9, <16 x float> splat (float 0xBFC0D82460000000))
  %v17 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v16, <16 x float> %v9, <16 x float> splat (float 0x3FC22D9300000000))
  %v18 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v17, <16 x float> %v9, <16 x float> splat (float 0xBFC54728A0000000))
  %v19 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v18, <16 x float> %v9, <16 x float> splat (float 0x3FC99A01C0000000))
  %v20 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v19, <16 x float> %v9, <16 x float> splat (float 0xBFD0002260000000))
  %v21 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v20, <16 x float> %v9, <16 x float> splat (float 0x3FD5555540000000))
  %v22 = fmul <16 x float> %v14, %v21
  %v23 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x0000000000000000), <16 x float> splat (float 0xBF2BD01060000000), <16 x float> %v22)
  %v24 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v13, <16 x float> splat (float 0xBFE0000000000000), <16 x float> %v23)
  %v25 = fadd <16 x float> %v9, %v24
  %v26 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x0000000000000000), <16 x float> splat (float 0x3FE6300000000000), <16 x float> %v25)
  %v27 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v26, <16 x float> splat (float 0x3E54AE0C00000000), <16 x float> %v12)
  %v28 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v26, <16 x float> splat (float 0x3FF7154760000000), <16 x float> %v27)
  %v29 = fcmp olt <16 x float> %x0, splat (float 0x7FF0000000000000)
  %v30 = select <16 x i1> %v29, <16 x float> %v28, <16 x float> %x0
  %v31 = fcmp olt <16 x float> %x0, splat (float 0x0000000000000000)
  %v32 = select <16 x i1> %v31, <16 x float> splat (float 0x7FF8000000000000), <16 x float> %v30
  %v33 = fcmp oeq <16 x float> %x0, splat (float 0x0000000000000000)
  %v34 = select <16 x i1> %v33, <16 x float> splat (float 0xFFF0000000000000), <16 x float> %v32
  ret <16 x float> %v34
}

define internal <16 x float> @aotc.pow.v16f32(<16 x float> %x0, <16 x float> %x1) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x0)
  %v1 = fpext <16 x float> %v0 to <16 x double>
  %v2 = bitcast <16 x double> %v1 to <16 x i64>
  %v3 = sub <16 x i64> %v2, splat (i64 4604544271217802189)
  %v4 = ashr <16 x i64> %v3, splat (i64 52)
  %v5 = shl <16 x i64> %v4, splat (i64 52)
  %v6 = sub <16 x i64> %v2, %v5
  %v7 = bitcast <16 x i64> %v6 to <16 x double>
  %v8 = fsub <16 x double> %v7, splat (double 0x3FF0000000000000)
  %v9 = call <16 x double> @llvm.fma.v16f64(<16 x double> splat (double 0x3FB02C8CC764246C), <16 x double> %v8, <16 x double> splat (double 0xBFBF9EECF60C0E3B))
  %v10 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v9, <16 x double> %v8, <16 x double> splat (double 0x3FC024D10BD48C6D))
  %v11 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v10, <16 x double> %v8, <16 x double> splat (double 0xBFBE9FD05BE5CF77))
  %v12 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v11, <16 x double> %v8, <16 x double> splat (double 0x3FC087CBE92A3147))
  %v13 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v12, <16 x double> %v8, <16 x double> splat (double 0xBFC272B9B2E87208))
  %v14 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v13, <16 x double> %v8, <16 x double> splat (double 0x3FC488D050E4E7C2))
  %v15 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v14, <16 x double> %v8, <16 x double> splat (double 0xBFC715B8DA411A52))
  %v16 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v15, <16 x double> %v8, <16 x double> splat (double 0x3FCA615467E1A0B6))
  %v17 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v16, <16 x double> %v8, <16 x double> splat (double 0xBFCEC7061DFCE729))
  %v18 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v17, <16 x double> %v8, <16 x double> splat (double 0x3FD2776C940927D8))
  %v19 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v18, <16 x double> %v8, <16 x double> splat (double 0xBFD715476B441B55))
  %v20 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v19, <16 x double> %v8, <16 x double> splat (double 0x3FDEC709DBD246B4))
  %v21 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v20, <16 x double> %v8, <16 x double> splat (double 0xBFE715476528D490))
  %v22 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v21, <16 x double> %v8, <16 x double> splat (double 0x3FF71547652B89DF))
  %v23 = sitofp <16 x i64> %v4 to <16 x double>
  %v24 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v8, <16 x double> %v22, <16 x double> %v23)
  %v25 = fcmp olt <16 x float> %v0, splat (float 0x7FF0000000000000)
  %v26 = select <16 x i1> %v25, <16 x double> %v24, <16 x double> %v1
  %v27 = fcmp oeq <16 x float> %v0, splat (float 0x0000000000000000)
  %v28 = select <16 x i1> %v27, <16 x double> splat (double 0xFFF0000000000000), <16 x double> %v26
  %v29 = fpext <16 x float> %x1 to <16 x double>
  %v30 = fmul <16 x double> %v29, %v28
  %v31 = fcmp oeq <16 x float> %v0, splat (float 0x3FF0000000000000)
  %v32 = select <16 x i1> %v31, <16 x double> splat (double 0x0000000000000000), <16 x double> %v30
  %v33 = fcmp ogt <16 x double> %v32, splat (double 0x4069000000000000)
  %v34 = select <16 x i1> %v33, <16 x double> splat (double 0x4069000000000000), <16 x double> %v32
  %v35 = fcmp olt <16 x double> %v34, splat (double 0xC069000000000000)
  %v36 = select <16 x i1> %v35, <16 x double> splat (double 0xC069000000000000), <16 x double> %v34
  %v37 = fadd <16 x double> %v36, splat (double 0x4338000000000000)
  %v38 = bitcast <16 x double> %v37 to <16 x i64>
  %v39 = shl <16 x i64> %v38, splat (i64 52)
  %v40 = fsub <16 x double> %v37, splat (double 0x4338000000000000)
  %v41 = fsub <16 x double> %v36, %v40
  %v42 = call <16 x double> @llvm.fma.v16f64(<16 x double> splat (double 0x3EB6405FDBC5DBD4), <16 x double> %v41, <16 x double> splat (double 0x3EF00DC099235D2C))
  %v43 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v42, <16 x double> %v41, <16 x double> splat (double 0x3F24308792FCBDB7))
  %v44 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v43, <16 x double> %v41, <16 x double> splat (double 0x3F55D8746252BBC6))
  %v45 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v44, <16 x double> %v41, <16 x double> splat (double 0x3F83B2AB73670D4B))
  %v46 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v45, <16 x double> %v41, <16 x double> splat (double 0x3FAC6B08DD6681D7))
  %v47 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v46, <16 x double> %v41, <16 x double> splat (double 0x3FCEBFBDFF80F248))
  %v48 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v47, <16 x double> %v41, <16 x double> splat (double 0x3FE62E42FEF8534A))
  %v49 = call <16 x double> @llvm.fma.v16f64(<16 x double> %v41, <16 x double> %v48, <16 x double> splat (double 0x3FF0000000000000))
  %v50 = bitcast <16 x double> %v49 to <16 x i64>
  %v51 = add <16 x i64> %v50, %v39
  %v52 = bitcast <16 x i64> %v51 to <16 x double>
  %v53 = fcmp uno <16 x double> %v36, %v36
  %v54 = select <16 x i1> %v53, <16 x double> %v36, <16 x double> %v52
  %v55 = fptrunc <16 x double> %v54 to <16 x float>
  %v56 = call <16 x float> @llvm.trunc.v16f32(<16 x float> %x1)
  %v57 = fcmp oeq <16 x float> %v56, %x1
  %v58 = fmul <16 x float> %x1, splat (float 0x3FE0000000000000)
  %v59 = call <16 x float> @llvm.trunc.v16f32(<16 x float> %v58)
  %v60 = fcmp oeq <16 x float> %v59, %v58
  %v61 = xor <16 x i1> %v60, splat (i1 1)
  %v62 = and <16 x i1> %v57, %v61
  %v63 = call <16 x float> @llvm.copysign.v16f32(<16 x float> %v55, <16 x float> %x0)
  %v64 = select <16 x i1> %v62, <16 x float> %v63, <16 x float> %v55
  %v65 = fcmp olt <16 x float> %x0, splat (float 0x0000000000000000)
  %v66 = fcmp ogt <16 x float> %x0, splat (float 0xFFF0000000000000)
  %v67 = and <16 x i1> %v65, %v66
  %v68 = xor <16 x i1> %v57, splat (i1 1)
  %v69 = and <16 x i1> %v67, %v68
  %v70 = select <16 x i1> %v69, <16 x float> splat (float 0x7FF8000000000000), <16 x float> %v64
  %v71 = fcmp oeq <16 x float> %x1, splat (float 0x0000000000000000)
  %v72 = fcmp oeq <16 x float> %x0, splat (float 0x3FF0000000000000)
  %v73 = or <16 x i1> %v71, %v72
  %v74 = select <16 x i1> %v73, <16 x float> splat (float 0x3FF0000000000000), <16 x float> %v70
  ret <16 x float> %v74
}

define internal <16 x float> @aotc.round.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <16 x float> @llvm.roundeven.v16f32(<16 x float> %x0)
  ret <16 x float> %v0
}

define internal <16 x float> @aotc.rsqrt.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <16 x float> @llvm.sqrt.v16f32(<16 x float> %x0)
  %v1 = fdiv <16 x float> splat (float 0x3FF0000000000000), %v0
  ret <16 x float> %v1
}

define internal <16 x float> @aotc.sigmoid.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = fneg <16 x float> %x0
  %v1 = fcmp ogt <16 x float> %v0, splat (float 0x4056800000000000)
  %v2 = select <16 x i1> %v1, <16 x float> splat (float 0x4056800000000000), <16 x float> %v0
  %v3 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v2, <16 x float> splat (float 0x3FF7154760000000), <16 x float> splat (float 0x4168000000000000))
  %v4 = fsub <16 x float> %v3, splat (float 0x4168000000000000)
  %v5 = bitcast <16 x float> %v3 to <16 x i32>
  %v6 = sub <16 x i32> %v5, splat (i32 1262485504)
  %v7 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v4, <16 x float> splat (float 0xBFE6300000000000), <16 x float> %v2)
  %v8 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v4, <16 x float> splat (float 0x3F2BD01060000000), <16 x float> %v7)
  %v9 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3F80FA0D80000000), <16 x float> %v8, <16 x float> splat (float 0x3FA573A200000000))
  %v10 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v9, <16 x float> %v8, <16 x float> splat (float 0x3FC555A7E0000000))
  %v11 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v10, <16 x float> %v8, <16 x float> splat (float 0x3FDFFFDC60000000))
  %v12 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v11, <16 x float> %v8, <16 x float> splat (float 0x3FEFFFFF60000000))
  %v13 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v8, <16 x float> %v12, <16 x float> splat (float 0x3FF0000000000000))
  %v14 = call <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float> %v13, <16 x float> %v4, <16 x float> %v13, i16 -1, i32 4)
  %v15 = fcmp uge <16 x float> %v0, splat (float 0xC059FEB860000000)
  %v16 = select <16 x i1> %v15, <16 x float> %v14, <16 x float> splat (float 0x0000000000000000)
  %v17 = fadd <16 x float> %v16, splat (float 0x3FF0000000000000)
  %v18 = fdiv <16 x float> splat (float 0x3FF0000000000000), %v17
  ret <16 x float> %v18
}

define internal <16 x float> @aotc.sin.v16f32(<16 x float> %given0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %x0 = freeze <16 x float> %given0
  %v0 = call <16 x float> @llvm.fma.v16f32(<16 x float> %x0, <16 x float> splat (float 0x3FE45F3060000000), <16 x float> splat (float 0x4168000000000000))
  %v1 = fsub <16 x float> %v0, splat (float 0x4168000000000000)
  %v2 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v1, <16 x float> splat (float 0xBFF921FB60000000), <16 x float> %x0)
  %v3 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v1, <16 x float> splat (float 0x3E6777A5C0000000), <16 x float> %v2)
  %v4 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v1, <16 x float> splat (float 0x3CDEE59DA0000000), <16 x float> %v3)
  %v5 = bitcast <16 x float> %v0 to <16 x i32>
  %v6 = sub <16 x i32> %v5, splat (i32 1262485504)
  %v7 = fmul <16 x float> %v4, %v4
  %v8 = fmul <16 x float> %v7, %v4
  %v9 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0xBF29954080000000), <16 x float> %v7, <16 x float> splat (float 0x3F81107780000000))
  %v10 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v9, <16 x float> %v7, <16 x float> splat (float 0xBFC5555460000000))
  %v11 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v8, <16 x float> %v10, <16 x float> %v4)
  %v12 = fmul <16 x float> %v7, %v7
  %v13 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3EF99E0EC0000000), <16 x float> %v7, <16 x float> splat (float 0xBF56C0C1A0000000))
  %v14 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v13, <16 x float> %v7, <16 x float> splat (float 0x3FA55554A0000000))
  %v15 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v7, <16 x float> splat (float 0xBFE0000000000000), <16 x float> splat (float 0x3FF0000000000000))
  %v16 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v12, <16 x float> %v14, <16 x float> %v15)
  %v17 = and <16 x i32> %v6, splat (i32 1)
  %v18 = icmp eq <16 x i32> %v17, splat (i32 1)
  %v19 = select <16 x i1> %v18, <16 x float> %v16, <16 x float> %v11
  %v20 = select <16 x i1> %v18, <16 x float> %v11, <16 x float> %v16
  %v21 = and <16 x i32> %v6, splat (i32 2)
  %v22 = shl <16 x i32> %v21, splat (i32 30)
  %v23 = bitcast <16 x float> %v19 to <16 x i32>
  %v24 = xor <16 x i32> %v23, %v22
  %v25 = bitcast <16 x i32> %v24 to <16 x float>
  %v26 = add <16 x i32> %v6, splat (i32 1)
  %v27 = and <16 x i32> %v26, splat (i32 2)
  %v28 = shl <16 x i32> %v27, splat (i32 30)
  %v29 = bitcast <16 x float> %v20 to <16 x i32>
  %v30 = xor <16 x i32> %v29, %v28
  %v31 = bitcast <16 x i32> %v30 to <16 x float>
  %v32 = fcmp oeq <16 x float> %x0, splat (float 0x0000000000000000)
  %v33 = select <16 x i1> %v32, <16 x float> %x0, <16 x float> %v25
  %v34 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x0)
  %v35 = fcmp ogt <16 x float> %v34, splat (float 0x40F86A0000000000)
  %v36 = call i1 @llvm.vector.reduce.or.v16i1(<16 x i1> %v35)
  br i1 %v36, label %rare37, label %after37
rare37:
  %v39 = call <16 x float> @aotc.sin.large.v16f32(<16 x float> %x0)
  %v40 = select <16 x i1> %v35, <16 x float> %v39, <16 x float> %v33
  br label %after37
after37:
  %v43 = phi <16 x float> [ %v33, %entry ], [ %v40, %rare37 ]
  ret <16 x float> %v43
}

define internal float @aotc.sin.large.f32(float %x) noinline cold nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
  %v0 = bitcast float %x to i32
  %v1 = lshr i32 %v0, 23
  %v2 = and i32 %v1, 255
  %v3 = sub i32 %v2, 150
  %v4 = and i32 %v0, 8388607
  %v5 = or i32 %v4, 8388608
  %v6 = zext i32 %v5 to i128
  %v7 = sub i32 106, %v3
  %v8 = zext i32 %v7 to i256
  %v9 = lshr i256 1023008531944964742713634320094839494465182657242203849507326, %v8
  %v10 = trunc i256 %v9 to i128
  %v11 = mul i128 %v6, %v10
  %v12 = shl i128 %v11, 32
  %v13 = add i128 %v12, 42535295865117307932921825928971026432
  %v14 = lshr i128 %v13, 126
  %v15 = shl i128 %v14, 126
  %v16 = sub i128 %v12, %v15
  %v17 = lshr i128 %v16, 64
  %v18 = trunc i128 %v17 to i64
  %v19 = sitofp i64 %v18 to double
  %v20 = fmul double %v19, 0x3C1921FB54442D18
  %v21 = fptrunc double %v20 to float
  %v22 = trunc i128 %v14 to i32
  %v23 = icmp slt i32 %v0, 0
  %v24 = fneg float %v21
  %v25 = select i1 %v23, float %v24, float %v21
  %v26 = sub i32 0, %v22
  %v27 = select i1 %v23, i32 %v26, i32 %v22
  %v28 = fmul float %v25, %v25
  %v29 = fmul float %v28, %v25
  %v30 = call float @llvm.fma.f32(float 0xBF29954080000000, float %v28, float 0x3F81107780000000)
  %v31 = call float @llvm.fma.f32(float %v30, float %v28, float 0xBFC5555460000000)
  %v32 = call float @llvm.fma.f32(float %v29, float %v31, float %v25)
  %v33 = fmul float %v28, %v28
  %v34 = call float @llvm.fma.f32(float 0x3EF99E0EC0000000, float %v28, float 0xBF56C0C1A0000000)
  %v35 = call float @llvm.fma.f32(float %v34, float %v28, float 0x3FA55554A0000000)
  %v36 = call float @llvm.fma.f32(float %v28, float 0xBFE0000000000000, float 0x3FF0000000000000)
  %v37 = call float @llvm.fma.f32(float %v33, float %v35, float %v36)
  %v38 = and i32 %v27, 1
  %v39 = icmp eq i32 %v38, 1
  %v40 = select i1 %v39, float %v37, float %v32
  %v41 = select i1 %v39, float %v32, float %v37
  %v42 = and i32 %v27, 2
  %v43 = shl i32 %v42, 30
  %v44 = bitcast float %v40 to i32
  %v45 = xor i32 %v44, %v43
  %v46 = bitcast i32 %v45 to float
  %v47 = add i32 %v27, 1
  %v48 = and i32 %v47, 2
  %v49 = shl i32 %v48, 30
  %v50 = bitcast float %v41 to i32
  %v51 = xor i32 %v50, %v49
  %v52 = bitcast i32 %v51 to float
  %v53 = call float @llvm.fabs.f32(float %x)
  %v54 = fcmp olt float %v53, 0x7FF0000000000000
  %v55 = fsub float %x, %x
  %v56 = select i1 %v54, float %v46, float %v55
  ret float %v56
}

define internal <16 x float> @aotc.sin.large.v16f32(<16 x float> %x) noinline cold nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
  %a0 = extractelement <16 x float> %x, i32 0
  %b0 = call float @aotc.sin.large.f32(float %a0)
  %c0 = insertelement <16 x float> poison, float %b0, i32 0
  %a1 = extractelement <16 x float> %x, i32 1
  %b1 = call float @aotc.sin.large.f32(float %a1)
  %c1 = insertelement <16 x float> %c0, float %b1, i32 1
  %a2 = extractelement <16 x float> %x, i32 2
  %b2 = call float @aotc.sin.large.f32(float %a2)
  %c2 = insertelement <16 x float> %c1, float %b2, i32 2
  %a3 = extractelement <16 x float> %x, i32 3
  %b3 = call float @aotc.sin.large.f32(float %a3)
  %c3 = insertelement <16 x float> %c2, float %b3, i32 3
  %a4 = extractelement <16 x float> %x, i32 4
  %b4 = call float @aotc.sin.large.f32(float %a4)
  %c4 = insertelement <16 x float> %c3, float %b4, i32 4
  %a5 = extractelement <16 x float> %x, i32 5
  %b5 = call float @aotc.sin.large.f32(float %a5)
  %c5 = insertelement <16 x float> %c4, float %b5, i32 5
  %a6 = extractelement <16 x float> %x, i32 6
  %b6 = call float @aotc.sin.large.f32(float %a6)
  %c6 = insertelement <16 x float> %c5, float %b6, i32 6
  %a7 = extractelement <16 x float> %x, i32 7
  %b7 = call float @aotc.sin.large.f32(float %a7)
  %c7 = insertelement <16 x float> %c6, float %b7, i32 7
  %a8 = extractelement <16 x float> %x, i32 8
  %b8 = call float @aotc.sin.large.f32(float %a8)
  %c8 = insertelement <16 x float> %c7, float %b8, i32 8
  %a9 = extractelement <16 x float> %x, i32 9
  %b9 = call float @aotc.sin.large.f32(float %a9)
  %c9 = insertelement <16 x float> %c8, float %b9, i32 9
  %a10 = extractelement <16 x float> %x, i32 10
  %b10 = call float @aotc.sin.large.f32(float %a10)
  %c10 = insertelement <16 x float> %c9, float %b10, i32 10
  %a11 = extractelement <16 x float> %x, i32 11
  %b11 = call float @aotc.sin.large.f32(float %a11)
  %c11 = insertelement <16 x float> %c10, float %b11, i32 11
  %a12 = extractelement <16 x float> %x, i32 12
  %b12 = call float @aotc.sin.large.f32(float %a12)
  %c12 = insertelement <16 x float> %c11, float %b12, i32 12
  %a13 = extractelement <16 x float> %x, i32 13
  %b13 = call float @aotc.sin.large.f32(float %a13)
  %c13 = insertelement <16 x float> %c12, float %b13, i32 13
  %a14 = extractelement <16 x float> %x, i32 14
  %b14 = call float @aotc.sin.large.f32(float %a14)
  %c14 = insertelement <16 x float> %c13, float %b14, i32 14
  %a15 = extractelement <16 x float> %x, i32 15
  %b15 = call float @aotc.sin.large.f32(float %a15)
  %c15 = insertelement <16 x float> %c14, float %b15, i32 15
  ret <16 x float> %c15
}

define internal <16 x float> @aotc.sinh.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x0)
  %v1 = fcmp ogt <16 x float> %v0, splat (float 0x4056800000000000)
  %v2 = select <16 x i1> %v1, <16 x float> splat (float 0x4056800000000000), <16 x float> %v0
  %v3 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v2, <16 x float> splat (float 0x3FF7154760000000), <16 x float> splat (float 0x4168000000000000))
  %v4 = fsub <16 x float> %v3, splat (float 0x4168000000000000)
  %v5 = bitcast <16 x float> %v3 to <16 x i32>
  %v6 = sub <16 x i32> %v5, splat (i32 1262485504)
  %v7 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v4, <16 x float> splat (float 0xBFE6300000000000), <16 x float> %v2)
  %v8 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v4, <16 x float> splat (float 0x3F2BD01060000000), <16 x float> %v7)
  %v9 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3F80FA0D80000000), <16 x float> %v8, <16 x float> splat (float 0x3FA573A200000000))
  %v10 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v9, <16 x float> %v8, <16 x float> splat (float 0x3FC555A7E0000000))
  %v11 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v10, <16 x float> %v8, <16 x float> splat (float 0x3FDFFFDC60000000))
  %v12 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v11, <16 x float> %v8, <16 x float> splat (float 0x3FEFFFFF60000000))
  %v13 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v8, <16 x float> %v12, <16 x float> splat (float 0x3FF0000000000000))
  %v14 = fsub <16 x float> %v4, splat (float 0x3FF0000000000000)
  %v15 = call <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float> %v13, <16 x float> %v14, <16 x float> %v13, i16 -1, i32 4)
  %v16 = fcmp uge <16 x float> %v0, splat (float 0xC059FEB860000000)
  %v17 = select <16 x i1> %v16, <16 x float> %v15, <16 x float> splat (float 0x0000000000000000)
  %v18 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x0)
  %v19 = fcmp ogt <16 x float> %v18, splat (float 0x4056400000000000)
  %v20 = select <16 x i1> %v19, <16 x float> splat (float 0x4056400000000000), <16 x float> %v18
  %v21 = fcmp olt <16 x float> %v20, splat (float 0xC032000000000000)
  %v22 = select <16 x i1> %v21, <16 x float> splat (float 0xC032000000000000), <16 x float> %v20
  %v23 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v22, <16 x float> splat (float 0x3FF7154760000000), <16 x float> splat (float 0x4168000000000000))
  %v24 = fsub <16 x float> %v23, splat (float 0x4168000000000000)
  %v25 = bitcast <16 x float> %v23 to <16 x i32>
  %v26 = sub <16 x i32> %v25, splat (i32 1262485504)
  %v27 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v24, <16 x float> splat (float 0xBFE6300000000000), <16 x float> %v22)
  %v28 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v24, <16 x float> splat (float 0x3F2BD01060000000), <16 x float> %v27)
  %v29 = fmul <16 x float> %v28, %v28
  %v30 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3F56B97A40000000), <16 x float> %v28, <16 x float> splat (float 0x3F81225380000000))
  %v31 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v30, <16 x float> %v28, <16 x float> splat (float 0x3FA5556F60000000))
  %v32 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v31, <16 x float> %v28, <16 x float> splat (float 0x3FC5554B40000000))
  %v33 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v32, <16 x float> %v28, <16 x float> splat (float 0x3FDFFFFFE0000000))
  %v34 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v29, <16 x float> %v33, <16 x float> %v28)
  %v35 = sub <16 x i32> %v26, splat (i32 1)
  %v36 = add <16 x i32> %v35, splat (i32 127)
  %v37 = shl <16 x i32> %v36, splat (i32 23)
  %v38 = bitcast <16 x i32> %v37 to <16 x float>
  %v39 = fsub <16 x float> %v38, splat (float 0x3FE0000000000000)
  %v40 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v38, <16 x float> %v34, <16 x float> %v39)
  %v41 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %v18)
  %v42 = fcmp olt <16 x float> %v41, splat (float 0x39B4484C00000000)
  %v43 = fadd <16 x float> %v40, %v40
  %v44 = select <16 x i1> %v42, <16 x float> %v18, <16 x float> %v43
  %v45 = fadd <16 x float> %v44, splat (float 0x3FF0000000000000)
  %v46 = fdiv <16 x float> %v44, %v45
  %v47 = fadd <16 x float> %v44, %v46
  %v48 = fmul <16 x float> %v47, splat (float 0x3FE0000000000000)
  %v49 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x0)
  %v50 = fcmp olt <16 x float> %v49, splat (float 0x3FF0000000000000)
  %v51 = fdiv <16 x float> splat (float 0x3FD0000000000000), %v17
  %v52 = fsub <16 x float> %v17, %v51
  %v53 = select <16 x i1> %v50, <16 x float> %v48, <16 x float> %v52
  %v54 = call <16 x float> @llvm.copysign.v16f32(<16 x float> %v53, <16 x float> %x0)
  ret <16 x float> %v54
}

define internal <16 x float> @aotc.sqrt.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <16 x float> @llvm.sqrt.v16f32(<16 x float> %x0)
  ret <16 x float> %v0
}

define internal <16 x float> @aotc.tan.v16f32(<16 x float> %given0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %x0 = freeze <16 x float> %given0
  %v0 = call <16 x float> @llvm.fma.v16f32(<16 x float> %x0, <16 x float> splat (float 0x3FE45F3060000000), <16 x float> splat (float 0x4168000000000000))
  %v1 = fsub <16 x float> %v0, splat (float 0x4168000000000000)
  %v2 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v1, <16 x float> splat (float 0xBFF921FB60000000), <16 x float> %x0)
  %v3 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v1, <16 x float> splat (float 0x3E6777A5C0000000), <16 x float> %v2)
  %v4 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v1, <16 x float> splat (float 0x3CDEE59DA0000000), <16 x float> %v3)
  %v5 = bitcast <16 x float> %v0 to <16 x i32>
  %v6 = sub <16 x i32> %v5, splat (i32 1262485504)
  %v7 = fmul <16 x float> %v4, %v4
  %v8 = fmul <16 x float> %v7, %v4
  %v9 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0xBF29954080000000), <16 x float> %v7, <16 x float> splat (float 0x3F81107780000000))
  %v10 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v9, <16 x float> %v7, <16 x float> splat (float 0xBFC5555460000000))
  %v11 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v8, <16 x float> %v10, <16 x float> %v4)
  %v12 = fmul <16 x float> %v7, %v7
  %v13 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3EF99E0EC0000000), <16 x float> %v7, <16 x float> splat (float 0xBF56C0C1A0000000))
  %v14 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v13, <16 x float> %v7, <16 x float> splat (float 0x3FA55554A0000000))
  %v15 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v7, <16 x float> splat (float 0xBFE0000000000000), <16 x float> splat (float 0x3FF0000000000000))
  %v16 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v12, <16 x float> %v14, <16 x float> %v15)
  %v17 = and <16 x i32> %v6, splat (i32 1)
  %v18 = icmp eq <16 x i32> %v17, splat (i32 1)
  %v19 = select <16 x i1> %v18, <16 x float> %v16, <16 x float> %v11
  %v20 = select <16 x i1> %v18, <16 x float> %v11, <16 x float> %v16
  %v21 = and <16 x i32> %v6, splat (i32 2)
  %v22 = shl <16 x i32> %v21, splat (i32 30)
  %v23 = bitcast <16 x float> %v19 to <16 x i32>
  %v24 = xor <16 x i32> %v23, %v22
  %v25 = bitcast <16 x i32> %v24 to <16 x float>
  %v26 = add <16 x i32> %v6, splat (i32 1)
  %v27 = and <16 x i32> %v26, splat (i32 2)
  %v28 = shl <16 x i32> %v27, splat (i32 30)
  %v29 = bitcast <16 x float> %v20 to <16 x i32>
  %v30 = xor <16 x i32> %v29, %v28
  %v31 = bitcast <16 x i32> %v30 to <16 x float>
  %v32 = fdiv <16 x float> %v25, %v31
  %v33 = fcmp oeq <16 x float> %x0, splat (float 0x0000000000000000)
  %v34 = select <16 x i1> %v33, <16 x float> %x0, <16 x float> %v32
  %v35 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x0)
  %v36 = fcmp ogt <16 x float> %v35, splat (float 0x40F86A0000000000)
  %v37 = call i1 @llvm.vector.reduce.or.v16i1(<16 x i1> %v36)
  br i1 %v37, label %rare38, label %after38
rare38:
  %v40 = call <16 x float> @aotc.tan.large.v16f32(<16 x float> %x0)
  %v41 = select <16 x i1> %v36, <16 x float> %v40, <16 x float> %v34
  br label %after38
after38:
  %v44 = phi <16 x float> [ %v34, %entry ], [ %v41, %rare38 ]
  ret <16 x float> %v44
}

define internal float @aotc.tan.large.f32(float %x) noinline cold nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
  %v0 = bitcast float %x to i32
  %v1 = lshr i32 %v0, 23
  %v2 = and i32 %v1, 255
  %v3 = sub i32 %v2, 150
  %v4 = and i32 %v0, 8388607
  %v5 = or i32 %v4, 8388608
  %v6 = zext i32 %v5 to i128
  %v7 = sub i32 106, %v3
  %v8 = zext i32 %v7 to i256
  %v9 = lshr i256 1023008531944964742713634320094839494465182657242203849507326, %v8
  %v10 = trunc i256 %v9 to i128
  %v11 = mul i128 %v6, %v10
  %v12 = shl i128 %v11, 32
  %v13 = add i128 %v12, 42535295865117307932921825928971026432
  %v14 = lshr i128 %v13, 126
  %v15 = shl i128 %v14, 126
  %v16 = sub i128 %v12, %v15
  %v17 = lshr i128 %v16, 64
  %v18 = trunc i128 %v17 to i64
  %v19 = sitofp i64 %v18 to double
  %v20 = fmul double %v19, 0x3C1921FB54442D18
  %v21 = fptrunc double %v20 to float
  %v22 = trunc i128 %v14 to i32
  %v23 = icmp slt i32 %v0, 0
  %v24 = fneg float %v21
  %v25 = select i1 %v23, float %v24, float %v21
  %v26 = sub i32 0, %v22
  %v27 = select i1 %v23, i32 %v26, i32 %v22
  %v28 = fmul float %v25, %v25
  %v29 = fmul float %v28, %v25
  %v30 = call float @llvm.fma.f32(float 0xBF29954080000000, float %v28, float 0x3F81107780000000)
  %v31 = call float @llvm.fma.f32(float %v30, float %v28, float 0xBFC5555460000000)
  %v32 = call float @llvm.fma.f32(float %v29, float %v31, float %v25)
  %v33 = fmul float %v28, %v28
  %v34 = call float @llvm.fma.f32(float 0x3EF99E0EC0000000, float %v28, float 0xBF56C0C1A0000000)
  %v35 = call float @llvm.fma.f32(float %v34, float %v28, float 0x3FA55554A0000000)
  %v36 = call float @llvm.fma.f32(float %v28, float 0xBFE0000000000000, float 0x3FF0000000000000)
  %v37 = call float @llvm.fma.f32(float %v33, float %v35, float %v36)
  %v38 = and i32 %v27, 1
  %v39 = icmp eq i32 %v38, 1
  %v40 = select i1 %v39, float %v37, float %v32
  %v41 = select i1 %v39, float %v32, float %v37
  %v42 = and i32 %v27, 2
  %v43 = shl i32 %v42, 30
  %v44 = bitcast float %v40 to i32
  %v45 = xor i32 %v44, %v43
  %v46 = bitcast i32 %v45 to float
  %v47 = add i32 %v27, 1
  %v48 = and i32 %v47, 2
  %v49 = shl i32 %v48, 30
  %v50 = bitcast float %v41 to i32
  %v51 = xor i32 %v50, %v49
  %v52 = bitcast i32 %v51 to float
  %v53 = fdiv float %v46, %v52
  %v54 = call float @llvm.fabs.f32(float %x)
  %v55 = fcmp olt float %v54, 0x7FF0000000000000
  %v56 = fsub float %x, %x
  %v57 = select i1 %v55, float %v53, float %v56
  ret float %v57
}

define internal <16 x float> @aotc.tan.large.v16f32(<16 x float> %x) noinline cold nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
  %a0 = extractelement <16 x float> %x, i32 0
  %b0 = call float @aotc.tan.large.f32(float %a0)
  %c0 = insertelement <16 x float> poison, float %b0, i32 0
  %a1 = extractelement <16 x float> %x, i32 1
  %b1 = call float @aotc.tan.large.f32(float %a1)
  %c1 = insertelement <16 x float> %c0, float %b1, i32 1
  %a2 = extractelement <16 x float> %x, i32 2
  %b2 = call float @aotc.tan.large.f32(float %a2)
  %c2 = insertelement <16 x float> %c1, float %b2, i32 2
  %a3 = extractelement <16 x float> %x, i32 3
  %b3 = call float @aotc.tan.large.f32(float %a3)
  %c3 = insertelement <16 x float> %c2, float %b3, i32 3
  %a4 = extractelement <16 x float> %x, i32 4
  %b4 = call float @aotc.tan.large.f32(float %a4)
  %c4 = insertelement <16 x float> %c3, float %b4, i32 4
  %a5 = extractelement <16 x float> %x, i32 5
  %b5 = call float @aotc.tan.large.f32(float %a5)
  %c5 = insertelement <16 x float> %c4, float %b5, i32 5
  %a6 = extractelement <16 x float> %x, i32 6
  %b6 = call float @aotc.tan.large.f32(float %a6)
  %c6 = insertelement <16 x float> %c5, float %b6, i32 6
  %a7 = extractelement <16 x float> %x, i32 7
  %b7 = call float @aotc.tan.large.f32(float %a7)
  %c7 = insertelement <16 x float> %c6, float %b7, i32 7
  %a8 = extractelement <16 x float> %x, i32 8
  %b8 = call float @aotc.tan.large.f32(float %a8)
  %c8 = insertelement <16 x float> %c7, float %b8, i32 8
  %a9 = extractelement <16 x float> %x, i32 9
  %b9 = call float @aotc.tan.large.f32(float %a9)
  %c9 = insertelement <16 x float> %c8, float %b9, i32 9
  %a10 = extractelement <16 x float> %x, i32 10
  %b10 = call float @aotc.tan.large.f32(float %a10)
  %c10 = insertelement <16 x float> %c9, float %b10, i32 10
  %a11 = extractelement <16 x float> %x, i32 11
  %b11 = call float @aotc.tan.large.f32(float %a11)
  %c11 = insertelement <16 x float> %c10, float %b11, i32 11
  %a12 = extractelement <16 x float> %x, i32 12
  %b12 = call float @aotc.tan.large.f32(float %a12)
  %c12 = insertelement <16 x float> %c11, float %b12, i32 12
  %a13 = extractelement <16 x float> %x, i32 13
  %b13 = call float @aotc.tan.large.f32(float %a13)
  %c13 = insertelement <16 x float> %c12, float %b13, i32 13
  %a14 = extractelement <16 x float> %x, i32 14
  %b14 = call float @aotc.tan.large.f32(float %a14)
  %c14 = insertelement <16 x float> %c13, float %b14, i32 14
  %a15 = extractelement <16 x float> %x, i32 15
  %b15 = call float @aotc.tan.large.f32(float %a15)
  %c15 = insertelement <16 x float> %c14, float %b15, i32 15
  ret <16 x float> %c15
}

define internal <16 x float> @aotc.tanh.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <16 x float> @llvm.fabs.v16f32(<16 x float> %x0)
  %v1 = fcmp ogt <16 x float> %v0, splat (float 0x40220A3D80000000)
  %v2 = select <16 x i1> %v1, <16 x float> splat (float 0x40220A3D80000000), <16 x float> %v0
  %v3 = fmul <16 x float> %v2, splat (float 0x4007154760000000)
  %v4 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v3, <16 x float> splat (float 0x3FF0000000000000), <16 x float> splat (float 0x4168000000000000))
  %v5 = fsub <16 x float> %v4, splat (float 0x4168000000000000)
  %v6 = bitcast <16 x float> %v4 to <16 x i32>
  %v7 = sub <16 x i32> %v6, splat (i32 1262485504)
  %v8 = fsub <16 x float> %v3, %v5
  %v9 = add <16 x i32> %v7, splat (i32 127)
  %v10 = shl <16 x i32> %v9, splat (i32 23)
  %v11 = bitcast <16 x i32> %v10 to <16 x float>
  %v12 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3F24447B80000000), <16 x float> %v8, <16 x float> splat (float 0x3F55F09600000000))
  %v13 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v12, <16 x float> %v8, <16 x float> splat (float 0x3F83B2A280000000))
  %v14 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v13, <16 x float> %v8, <16 x float> splat (float 0x3FAC6AF7A0000000))
  %v15 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v14, <16 x float> %v8, <16 x float> splat (float 0x3FCEBFBE00000000))
  %v16 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v15, <16 x float> %v8, <16 x float> splat (float 0x3FE62E4300000000))
  %v17 = fmul <16 x float> %v8, %v16
  %v18 = fsub <16 x float> %v11, splat (float 0x3FF0000000000000)
  %v19 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v11, <16 x float> %v17, <16 x float> %v18)
  %v20 = fadd <16 x float> %v19, splat (float 0x4000000000000000)
  %v21 = fdiv <16 x float> %v19, %v20
  %v22 = call <16 x float> @llvm.copysign.v16f32(<16 x float> %v21, <16 x float> %x0)
  ret <16 x float> %v22
}

define internal <16 x float> @aotc.trunc.v16f32(<16 x float> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <16 x float> @llvm.trunc.v16f32(<16 x float> %x0)
  ret <16 x float> %v0
}
