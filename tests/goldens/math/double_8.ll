define internal <8 x double> @aotc.acos.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x0)
  %v1 = fcmp ogt <8 x double> %v0, splat (double 0x3FE0000000000000)
  %v2 = fsub <8 x double> splat (double 0x3FF0000000000000), %v0
  %v3 = fmul <8 x double> %v2, splat (double 0x3FE0000000000000)
  %v4 = fmul <8 x double> %v0, %v0
  %v5 = select <8 x i1> %v1, <8 x double> %v3, <8 x double> %v4
  %v6 = call <8 x double> @llvm.sqrt.v8f64(<8 x double> %v5)
  %v7 = select <8 x i1> %v1, <8 x double> %v6, <8 x double> %v0
  %v8 = fmul <8 x double> %v7, %v5
  %v9 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x3F9D72B2BC8155F8), <8 x double> %v5, <8 x double> splat (double 0xBF8E6AAA8A0A04CC))
  %v10 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v9, <8 x double> %v5, <8 x double> splat (double 0x3F91D189408314EE))
  %v11 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v10, <8 x double> %v5, <8 x double> splat (double 0x3F765A9C4DFCF8B2))
  %v12 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v11, <8 x double> %v5, <8 x double> splat (double 0x3F852420B04B37BE))
  %v13 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v12, <8 x double> %v5, <8 x double> splat (double 0x3F8782651CAA6547))
  %v14 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v13, <8 x double> %v5, <8 x double> splat (double 0x3F8C9CF07674736A))
  %v15 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v14, <8 x double> %v5, <8 x double> splat (double 0x3F91C4D35CF95421))
  %v16 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v15, <8 x double> %v5, <8 x double> splat (double 0x3F96E8BB1C8209A2))
  %v17 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v16, <8 x double> %v5, <8 x double> splat (double 0x3F9F1C71C1DB0623))
  %v18 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v17, <8 x double> %v5, <8 x double> splat (double 0x3FA6DB6DB6E31F13))
  %v19 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v18, <8 x double> %v5, <8 x double> splat (double 0x3FB3333333332ECA))
  %v20 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v19, <8 x double> %v5, <8 x double> splat (double 0x3FC5555555555556))
  %v21 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v8, <8 x double> %v20, <8 x double> %v7)
  %v22 = fcmp olt <8 x double> %x0, splat (double 0x0000000000000000)
  %v23 = fadd <8 x double> %v21, %v21
  %v24 = fsub <8 x double> splat (double 0x400921FB54442D18), %v23
  %v25 = select <8 x i1> %v22, <8 x double> %v24, <8 x double> %v23
  %v26 = call <8 x double> @llvm.copysign.v8f64(<8 x double> %v21, <8 x double> %x0)
  %v27 = fsub <8 x double> %v26, splat (double 0x3C91A62633145C07)
  %v28 = fsub <8 x double> splat (double 0x3FF921FB54442D18), %v27
  %v29 = select <8 x i1> %v1, <8 x double> %v25, <8 x double> %v28
  ret <8 x double> %v29
}

define internal <8 x double> @aotc.asin.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x0)
  %v1 = fcmp ogt <8 x double> %v0, splat (double 0x3FE0000000000000)
  %v2 = fsub <8 x double> splat (double 0x3FF0000000000000), %v0
  %v3 = fmul <8 x double> %v2, splat (double 0x3FE0000000000000)
  %v4 = fmul <8 x double> %v0, %v0
  %v5 = select <8 x i1> %v1, <8 x double> %v3, <8 x double> %v4
  %v6 = call <8 x double> @llvm.sqrt.v8f64(<8 x double> %v5)
  %v7 = select <8 x i1> %v1, <8 x double> %v6, <8 x double> %v0
  %v8 = fmul <8 x double> %v7, %v5
  %v9 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x3F9D72B2BC8155F8), <8 x double> %v5, <8 x double> splat (double 0xBF8E6AAA8A0A04CC))
  %v10 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v9, <8 x double> %v5, <8 x double> splat (double 0x3F91D189408314EE))
  %v11 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v10, <8 x double> %v5, <8 x double> splat (double 0x3F765A9C4DFCF8B2))
  %v12 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v11, <8 x double> %v5, <8 x double> splat (double 0x3F852420B04B37BE))
  %v13 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v12, <8 x double> %v5, <8 x double> splat (double 0x3F8782651CAA6547))
  %v14 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v13, <8 x double> %v5, <8 x double> splat (double 0x3F8C9CF07674736A))
  %v15 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v14, <8 x double> %v5, <8 x double> splat (double 0x3F91C4D35CF95421))
  %v16 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v15, <8 x double> %v5, <8 x double> splat (double 0x3F96E8BB1C8209A2))
  %v17 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v16, <8 x double> %v5, <8 x double> splat (double 0x3F9F1C71C1DB0623))
  %v18 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v17, <8 x double> %v5, <8 x double> splat (double 0x3FA6DB6DB6E31F13))
  %v19 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v18, <8 x double> %v5, <8 x double> splat (double 0x3FB3333333332ECA))
  %v20 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v19, <8 x double> %v5, <8 x double> splat (double 0x3FC5555555555556))
  %v21 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v8, <8 x double> %v20, <8 x double> %v7)
  %v22 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v21, <8 x double> splat (double 0xC000000000000000), <8 x double> splat (double 0x3FF921FB54442D18))
  %v23 = select <8 x i1> %v1, <8 x double> %v22, <8 x double> %v21
  %v24 = call <8 x double> @llvm.copysign.v8f64(<8 x double> %v23, <8 x double> %x0)
  ret <8 x double> %v24
}

define internal <8 x double> @aotc.atan.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x0)
  %v1 = fcmp ogt <8 x double> %v0, splat (double 0x4003504F333F9DE6)
  %v2 = fcmp ogt <8 x double> %v0, splat (double 0x3FDA827999FCEF31)
  %v3 = fsub <8 x double> %v0, splat (double 0x3FF0000000000000)
  %v4 = select <8 x i1> %v2, <8 x double> %v3, <8 x double> %v0
  %v5 = select <8 x i1> %v1, <8 x double> splat (double 0xBFF0000000000000), <8 x double> %v4
  %v6 = fadd <8 x double> %v0, splat (double 0x3FF0000000000000)
  %v7 = select <8 x i1> %v2, <8 x double> %v6, <8 x double> splat (double 0x3FF0000000000000)
  %v8 = select <8 x i1> %v1, <8 x double> %v0, <8 x double> %v7
  %v9 = select <8 x i1> %v2, <8 x double> splat (double 0x3FE921FB54442D18), <8 x double> splat (double 0x0000000000000000)
  %v10 = select <8 x i1> %v1, <8 x double> splat (double 0x3FF921FB54442D18), <8 x double> %v9
  %v11 = fdiv <8 x double> %v5, %v8
  %v12 = fmul <8 x double> %v11, %v11
  %v13 = fmul <8 x double> %v12, %v11
  %v14 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0xBF93A27DD63AF0A7), <8 x double> %v12, <8 x double> splat (double 0x3FA415EBCBA15FD3))
  %v15 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v14, <8 x double> %v12, <8 x double> splat (double 0xBFAA09838B71A7CF))
  %v16 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v15, <8 x double> %v12, <8 x double> splat (double 0x3FADFE60585956A5))
  %v17 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v16, <8 x double> %v12, <8 x double> splat (double 0xBFB10FA73C8057AF))
  %v18 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v17, <8 x double> %v12, <8 x double> splat (double 0x3FB3B1262BF324FD))
  %v19 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v18, <8 x double> %v12, <8 x double> splat (double 0xBFB745D0B25982F3))
  %v20 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v19, <8 x double> %v12, <8 x double> splat (double 0x3FBC71C71852A359))
  %v21 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v20, <8 x double> %v12, <8 x double> splat (double 0xBFC2492492436016))
  %v22 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v21, <8 x double> %v12, <8 x double> splat (double 0x3FC9999999999349))
  %v23 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v22, <8 x double> %v12, <8 x double> splat (double 0xBFD5555555555555))
  %v24 = fmul <8 x double> %v13, %v23
  %v25 = fadd <8 x double> %v11, %v24
  %v26 = fadd <8 x double> %v10, %v25
  %v27 = call <8 x double> @llvm.copysign.v8f64(<8 x double> %v26, <8 x double> %x0)
  ret <8 x double> %v27
}

define internal <8 x double> @aotc.atan2.v8f64(<8 x double> %x0, <8 x double> %x1) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x0)
  %v1 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x1)
  %v2 = fcmp ogt <8 x double> %v0, %v1
  %v3 = select <8 x i1> %v2, <8 x double> %v1, <8 x double> %v0
  %v4 = select <8 x i1> %v2, <8 x double> %v0, <8 x double> %v1
  %v5 = fcmp oeq <8 x double> %v4, splat (double 0x0000000000000000)
  %v6 = fdiv <8 x double> %v3, %v4
  %v7 = select <8 x i1> %v5, <8 x double> splat (double 0x0000000000000000), <8 x double> %v6
  %v8 = fcmp oeq <8 x double> %v3, splat (double 0x7FF0000000000000)
  %v9 = select <8 x i1> %v8, <8 x double> splat (double 0x3FF0000000000000), <8 x double> %v7
  %v10 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %v9)
  %v11 = fcmp ogt <8 x double> %v10, splat (double 0x4003504F333F9DE6)
  %v12 = fcmp ogt <8 x double> %v10, splat (double 0x3FDA827999FCEF31)
  %v13 = fsub <8 x double> %v10, splat (double 0x3FF0000000000000)
  %v14 = select <8 x i1> %v12, <8 x double> %v13, <8 x double> %v10
  %v15 = select <8 x i1> %v11, <8 x double> splat (double 0xBFF0000000000000), <8 x double> %v14
  %v16 = fadd <8 x double> %v10, splat (double 0x3FF0000000000000)
  %v17 = select <8 x i1> %v12, <8 x double> %v16, <8 x double> splat (double 0x3FF0000000000000)
  %v18 = select <8 x i1> %v11, <8 x double> %v10, <8 x double> %v17
  %v19 = select <8 x i1> %v12, <8 x double> splat (double 0x3FE921FB54442D18), <8 x double> splat (double 0x0000000000000000)
  %v20 = select <8 x i1> %v11, <8 x double> splat (double 0x3FF921FB54442D18), <8 x double> %v19
  %v21 = fdiv <8 x double> %v15, %v18
  %v22 = fmul <8 x double> %v21, %v21
  %v23 = fmul <8 x double> %v22, %v21
  %v24 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0xBF93A27DD63AF0A7), <8 x double> %v22, <8 x double> splat (double 0x3FA415EBCBA15FD3))
  %v25 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v24, <8 x double> %v22, <8 x double> splat (double 0xBFAA09838B71A7CF))
  %v26 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v25, <8 x double> %v22, <8 x double> splat (double 0x3FADFE60585956A5))
  %v27 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v26, <8 x double> %v22, <8 x double> splat (double 0xBFB10FA73C8057AF))
  %v28 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v27, <8 x double> %v22, <8 x double> splat (double 0x3FB3B1262BF324FD))
  %v29 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v28, <8 x double> %v22, <8 x double> splat (double 0xBFB745D0B25982F3))
  %v30 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v29, <8 x double> %v22, <8 x double> splat (double 0x3FBC71C71852A359))
  %v31 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v30, <8 x double> %v22, <8 x double> splat (double 0xBFC2492492436016))
  %v32 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v31, <8 x double> %v22, <8 x double> splat (double 0x3FC9999999999349))
  %v33 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v32, <8 x double> %v22, <8 x double> splat (double 0xBFD5555555555555))
  %v34 = fmul <8 x double> %v23, %v33
  %v35 = fadd <8 x double> %v21, %v34
  %v36 = fadd <8 x double> %v20, %v35
  %v37 = call <8 x double> @llvm.copysign.v8f64(<8 x double> %v36, <8 x double> %v9)
  %v38 = fsub <8 x double> splat (double 0x3FF921FB54442D18), %v37
  %v39 = select <8 x i1> %v2, <8 x double> %v38, <8 x double> %v37
  %v40 = call <8 x double> @llvm.copysign.v8f64(<8 x double> splat (double 0x3FF0000000000000), <8 x double> %x1)
  %v41 = fcmp olt <8 x double> %v40, splat (double 0x0000000000000000)
  %v42 = fsub <8 x double> splat (double 0x400921FB54442D18), %v39
  %v43 = select <8 x i1> %v41, <8 x double> %v42, <8 x double> %v39
  %v44 = fcmp uno <8 x double> %x1, %x1
  %v45 = fcmp uno <8 x double> %x0, %x0
  %v46 = or <8 x i1> %v44, %v45
  %v47 = call <8 x double> @llvm.copysign.v8f64(<8 x double> %v43, <8 x double> %x0)
  %v48 = select <8 x i1> %v46, <8 x double> splat (double 0x7FF8000000000000), <8 x double> %v47
  ret <8 x double> %v48
}

define internal <8 x double> @aotc.ceil.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <8 x double> @llvm.ceil.v8f64(<8 x double> %x0)
  ret <8 x double> %v0
}

define internal <8 x double> @aotc.cos.v8f64(<8 x double> %given0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %x0 = freeze <8 x double> %given0
  %v0 = call <8 x double> @llvm.fma.v8f64(<8 x double> %x0, <8 x double> splat (double 0x3FE45F306DC9C883), <8 x double> splat (double 0x4338000000000000))
  %v1 = fsub <8 x double> %v0, splat (double 0x4338000000000000)
  %v2 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v1, <8 x double> splat (double 0xBFF921FB54442D18), <8 x double> %x0)
  %v3 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v1, <8 x double> splat (double 0xBC91A62633145C07), <8 x double> %v2)
  %v4 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v1, <8 x double> splat (double 0x391F1976B7ED8FBC), <8 x double> %v3)
  %v5 = bitcast <8 x double> %v0 to <8 x i64>
  %v6 = sub <8 x i64> %v5, splat (i64 4843621399236968448)
  %v7 = fmul <8 x double> %v4, %v4
  %v8 = fmul <8 x double> %v7, %v4
  %v9 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0xBD6AB17D404DE5B3), <8 x double> %v7, <8 x double> splat (double 0x3DE61217F0B800D5))
  %v10 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v9, <8 x double> %v7, <8 x double> splat (double 0xBE5AE645412C560C))
  %v11 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v10, <8 x double> %v7, <8 x double> splat (double 0x3EC71DE3A546095B))
  %v12 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v11, <8 x double> %v7, <8 x double> splat (double 0xBF2A01A01A019938))
  %v13 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v12, <8 x double> %v7, <8 x double> splat (double 0x3F81111111111110))
  %v14 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v13, <8 x double> %v7, <8 x double> splat (double 0xBFC5555555555555))
  %v15 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v8, <8 x double> %v14, <8 x double> %v4)
  %v16 = fmul <8 x double> %v7, splat (double 0x3FE0000000000000)
  %v17 = fsub <8 x double> splat (double 0x3FF0000000000000), %v16
  %v18 = fsub <8 x double> splat (double 0x3FF0000000000000), %v17
  %v19 = fsub <8 x double> %v18, %v16
  %v20 = fmul <8 x double> %v7, %v7
  %v21 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0xBDA907DA367A37CB), <8 x double> %v7, <8 x double> splat (double 0x3E21EEB68E93B64C))
  %v22 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v21, <8 x double> %v7, <8 x double> splat (double 0xBE927E4FA17DA09E))
  %v23 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v22, <8 x double> %v7, <8 x double> splat (double 0x3EFA01A019F4EB01))
  %v24 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v23, <8 x double> %v7, <8 x double> splat (double 0xBF56C16C16C16967))
  %v25 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v24, <8 x double> %v7, <8 x double> splat (double 0x3FA5555555555555))
  %v26 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v20, <8 x double> %v25, <8 x double> %v19)
  %v27 = fadd <8 x double> %v17, %v26
  %v28 = and <8 x i64> %v6, splat (i64 1)
  %v29 = icmp eq <8 x i64> %v28, splat (i64 1)
  %v30 = select <8 x i1> %v29, <8 x double> %v27, <8 x double> %v15
  %v31 = select <8 x i1> %v29, <8 x double> %v15, <8 x double> %v27
  %v32 = and <8 x i64> %v6, splat (i64 2)
  %v33 = shl <8 x i64> %v32, splat (i64 62)
  %v34 = bitcast <8 x double> %v30 to <8 x i64>
  %v35 = xor <8 x i64> %v34, %v33
  %v36 = bitcast <8 x i64> %v35 to <8 x double>
  %v37 = add <8 x i64> %v6, splat (i64 1)
  %v38 = and <8 x i64> %v37, splat (i64 2)
  %v39 = shl <8 x i64> %v38, splat (i64 62)
  %v40 = bitcast <8 x double> %v31 to <8 x i64>
  %v41 = xor <8 x i64> %v40, %v39
  %v42 = bitcast <8 x i64> %v41 to <8 x double>
  %v43 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x0)
  %v44 = fcmp ogt <8 x double> %v43, splat (double 0x41D0000000000000)
  %v45 = call i1 @llvm.vector.reduce.or.v8i1(<8 x i1> %v44)
  br i1 %v45, label %rare46, label %after46
rare46:
  %v48 = call <8 x double> @aotc.cos.large.v8f64(<8 x double> %x0)
  %v49 = select <8 x i1> %v44, <8 x double> %v48, <8 x double> %v42
  br label %after46
after46:
  %v52 = phi <8 x double> [ %v42, %entry ], [ %v49, %rare46 ]
  ret <8 x double> %v52
}

define internal double @aotc.cos.large.f64(double %x) noinline cold nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
  %v0 = bitcast double %x to i64
  %v1 = lshr i64 %v0, 52
  %v2 = and i64 %v1, 2047
  %v3 = sub i64 %v2, 1075
  %v4 = and i64 %v0, 4503599627370495
  %v5 = or i64 %v4, 4503599627370496
  %v6 = zext i64 %v5 to i192
  %v7 = sub i64 1026, %v3
  %v8 = zext i64 %v7 to i1216
  %v9 = lshr i1216 718381021399624732299735595385274618619477110114933939970624867101253838698409286420830629356098736488792170213291607745084880478721844605528653174581686922300486202694505885421890960380964262732784826317141842042973213136030346079209958129780529826118029123024124693399903324560936792704036471745513563425349871428881185122831297174569766706936548088547134192446379, %v8
  %v10 = trunc i1216 %v9 to i192
  %v11 = mul i192 %v6, %v10
  %v12 = add i192 %v11, 784637716923335095479473677900958302012794430558004314112
  %v13 = lshr i192 %v12, 190
  %v14 = shl i192 %v13, 190
  %v15 = sub i192 %v11, %v14
  %v16 = lshr i192 %v15, 128
  %v17 = trunc i192 %v16 to i64
  %v18 = sitofp i64 %v17 to double
  %v19 = lshr i192 %v15, 64
  %v20 = trunc i192 %v19 to i64
  %v21 = uitofp i64 %v20 to double
  %v22 = fmul double %v18, 0x3C10000000000000
  %v23 = fmul double %v21, 0x3810000000000000
  %v24 = fadd double %v22, %v23
  %v25 = fmul double %v24, 0x3FF921FB54442D18
  %v26 = trunc i192 %v13 to i64
  %v27 = icmp slt i64 %v0, 0
  %v28 = fneg double %v25
  %v29 = select i1 %v27, double %v28, double %v25
  %v30 = sub i64 0, %v26
  %v31 = select i1 %v27, i64 %v30, i64 %v26
  %v32 = fmul double %v29, %v29
  %v33 = fmul double %v32, %v29
  %v34 = call double @llvm.fma.f64(double 0xBD6AB17D404DE5B3, double %v32, double 0x3DE61217F0B800D5)
  %v35 = call double @llvm.fma.f64(double %v34, double %v32, double 0xBE5AE645412C560C)
  %v36 = call double @llvm.fma.f64(double %v35, double %v32, double 0x3EC71DE3A546095B)
  %v37 = call double @llvm.fma.f64(double %v36, double %v32, double 0xBF2A01A01A019938)
  %v38 = call double @llvm.fma.f64(double %v37, double %v32, double 0x3F81111111111110)
  %v39 = call double @llvm.fma.f64(double %v38, double %v32, double 0xBFC5555555555555)
  %v40 = call double @llvm.fma.f64(double %v33, double %v39, double %v29)
  %v41 = fmul double %v32, 0x3FE0000000000000
  %v42 = fsub double 0x3FF0000000000000, %v41
  %v43 = fsub double 0x3FF0000000000000, %v42
  %v44 = fsub double %v43, %v41
  %v45 = fmul double %v32, %v32
  %v46 = call double @llvm.fma.f64(double 0xBDA907DA367A37CB, double %v32, double 0x3E21EEB68E93B64C)
  %v47 = call double @llvm.fma.f64(double %v46, double %v32, double 0xBE927E4FA17DA09E)
  %v48 = call double @llvm.fma.f64(double %v47, double %v32, double 0x3EFA01A019F4EB01)
  %v49 = call double @llvm.fma.f64(double %v48, double %v32, double 0xBF56C16C16C16967)
  %v50 = call double @llvm.fma.f64(double %v49, double %v32, double 0x3FA5555555555555)
  %v51 = call double @llvm.fma.f64(double %v45, double %v50, double %v44)
  %v52 = fadd double %v42, %v51
  %v53 = and i64 %v31, 1
  %v54 = icmp eq i64 %v53, 1
  %v55 = select i1 %v54, double %v52, double %v40
  %v56 = select i1 %v54, double %v40, double %v52
  %v57 = and i64 %v31, 2
  %v58 = shl i64 %v57, 62
  %v59 = bitcast double %v55 to i64
  %v60 = xor i64 %v59, %v58
  %v61 = bitcast i64 %v60 to double
  %v62 = add i64 %v31, 1
  %v63 = and i64 %v62, 2
  %v64 = shl i64 %v63, 62
  %v65 = bitcast double %v56 to i64
  %v66 = xor i64 %v65, %v64
  %v67 = bitcast i64 %v66 to double
  %v68 = call double @llvm.fabs.f64(double %x)
  %v69 = fcmp olt double %v68, 0x7FF0000000000000
  %v70 = fsub double %x, %x
  %v71 = select i1 %v69, double %v67, double %v70
  ret double %v71
}

define internal <8 x double> @aotc.cos.large.v8f64(<8 x double> %x) noinline cold nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
  %a0 = extractelement <8 x double> %x, i32 0
  %b0 = call double @aotc.cos.large.f64(double %a0)
  %c0 = insertelement <8 x double> poison, double %b0, i32 0
  %a1 = extractelement <8 x double> %x, i32 1
  %b1 = call double @aotc.cos.large.f64(double %a1)
  %c1 = insertelement <8 x double> %c0, double %b1, i32 1
  %a2 = extractelement <8 x double> %x, i32 2
  %b2 = call double @aotc.cos.large.f64(double %a2)
  %c2 = insertelement <8 x double> %c1, double %b2, i32 2
  %a3 = extractelement <8 x double> %x, i32 3
  %b3 = call double @aotc.cos.large.f64(double %a3)
  %c3 = insertelement <8 x double> %c2, double %b3, i32 3
  %a4 = extractelement <8 x double> %x, i32 4
  %b4 = call double @aotc.cos.large.f64(double %a4)
  %c4 = insertelement <8 x double> %c3, double %b4, i32 4
  %a5 = extractelement <8 x double> %x, i32 5
  %b5 = call double @aotc.cos.large.f64(double %a5)
  %c5 = insertelement <8 x double> %c4, double %b5, i32 5
  %a6 = extractelement <8 x double> %x, i32 6
  %b6 = call double @aotc.cos.large.f64(double %a6)
  %c6 = insertelement <8 x double> %c5, double %b6, i32 6
  %a7 = extractelement <8 x double> %x, i32 7
  %b7 = call double @aotc.cos.large.f64(double %a7)
  %c7 = insertelement <8 x double> %c6, double %b7, i32 7
  ret <8 x double> %c7
}

define internal <8 x double> @aotc.cosh.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x0)
  %v1 = fcmp ogt <8 x double> %v0, splat (double 0x4086380000000000)
  %v2 = select <8 x i1> %v1, <8 x double> splat (double 0x4086380000000000), <8 x double> %v0
  %v3 = fcmp olt <8 x double> %v2, splat (double 0xC096293333333333)
  %v4 = select <8 x i1> %v3, <8 x double> splat (double 0xC096293333333333), <8 x double> %v2
  %v5 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v4, <8 x double> splat (double 0x3FF71547652B82FE), <8 x double> splat (double 0x4338000000000000))
  %v6 = fsub <8 x double> %v5, splat (double 0x4338000000000000)
  %v7 = bitcast <8 x double> %v5 to <8 x i64>
  %v8 = sub <8 x i64> %v7, splat (i64 4843621399236968448)
  %v9 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v6, <8 x double> splat (double 0xBFE62E42FEE00000), <8 x double> %v4)
  %v10 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v6, <8 x double> splat (double 0xBDEA39EF35793C76), <8 x double> %v9)
  %v11 = fmul <8 x double> %v10, %v10
  %v12 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x3DE61BFA83DD7873), <8 x double> %v10, <8 x double> splat (double 0x3E21F7F25B04B0D4))
  %v13 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v12, <8 x double> %v10, <8 x double> splat (double 0x3E5AE642C83E9462))
  %v14 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v13, <8 x double> %v10, <8 x double> splat (double 0x3E927E4D41A5CA90))
  %v15 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v14, <8 x double> %v10, <8 x double> splat (double 0x3EC71DE3A5AA78A7))
  %v16 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v15, <8 x double> %v10, <8 x double> splat (double 0x3EFA01A01A9E935E))
  %v17 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v16, <8 x double> %v10, <8 x double> splat (double 0x3F2A01A01A0196AD))
  %v18 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v17, <8 x double> %v10, <8 x double> splat (double 0x3F56C16C16C15A69))
  %v19 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v18, <8 x double> %v10, <8 x double> splat (double 0x3F81111111111111))
  %v20 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v19, <8 x double> %v10, <8 x double> splat (double 0x3FA5555555555557))
  %v21 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v20, <8 x double> %v10, <8 x double> splat (double 0x3FC5555555555555))
  %v22 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v21, <8 x double> %v10, <8 x double> splat (double 0x3FE0000000000000))
  %v23 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v11, <8 x double> %v22, <8 x double> %v10)
  %v24 = fadd <8 x double> %v23, splat (double 0x3FF0000000000000)
  %v25 = sub <8 x i64> %v8, splat (i64 1)
  %v26 = ashr <8 x i64> %v25, splat (i64 1)
  %v27 = add <8 x i64> %v26, splat (i64 1023)
  %v28 = shl <8 x i64> %v27, splat (i64 52)
  %v29 = bitcast <8 x i64> %v28 to <8 x double>
  %v30 = fmul <8 x double> %v24, %v29
  %v31 = sub <8 x i64> %v25, %v26
  %v32 = add <8 x i64> %v31, splat (i64 1023)
  %v33 = shl <8 x i64> %v32, splat (i64 52)
  %v34 = bitcast <8 x i64> %v33 to <8 x double>
  %v35 = fmul <8 x double> %v30, %v34
  %v36 = fdiv <8 x double> splat (double 0x3FD0000000000000), %v35
  %v37 = fadd <8 x double> %v35, %v36
  ret <8 x double> %v37
}

define internal <8 x double> @aotc.erf.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x0)
  %v1 = fmul <8 x double> %v0, %v0
  %v2 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0xBE0AC9585A44FE29), <8 x double> %v1, <8 x double> splat (double 0x3E4D76AF6CA49787))
  %v3 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v2, <8 x double> %v1, <8 x double> splat (double 0xBE85C131500D3F88))
  %v4 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v3, <8 x double> %v1, <8 x double> splat (double 0x3EBB981D78881A5D))
  %v5 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v4, <8 x double> %v1, <8 x double> splat (double 0xBEEF4CA838ADB73B))
  %v6 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v5, <8 x double> %v1, <8 x double> splat (double 0x3F1F9A2BE4F731A1))
  %v7 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v6, <8 x double> %v1, <8 x double> splat (double 0xBF4C02DB0665E53D))
  %v8 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v7, <8 x double> %v1, <8 x double> splat (double 0x3F7565BCCFA44156))
  %v9 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v8, <8 x double> %v1, <8 x double> splat (double 0xBF9B82CE31203772))
  %v10 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v9, <8 x double> %v1, <8 x double> splat (double 0x3FBCE2F21A040F66))
  %v11 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v10, <8 x double> %v1, <8 x double> splat (double 0xBFD812746B0379C1))
  %v12 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v11, <8 x double> %v1, <8 x double> splat (double 0x3FC06EBA8214DB68))
  %v13 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v0, <8 x double> %v12, <8 x double> %v0)
  %v14 = fcmp ogt <8 x double> %v0, splat (double 0x4018000000000000)
  %v15 = select <8 x i1> %v14, <8 x double> splat (double 0x4018000000000000), <8 x double> %v0
  %v16 = fcmp olt <8 x double> %v15, splat (double 0x3FF0000000000000)
  %v17 = select <8 x i1> %v16, <8 x double> splat (double 0x3FF0000000000000), <8 x double> %v15
  %v18 = fsub <8 x double> %v17, splat (double 0x4006000000000000)
  %v19 = fadd <8 x double> %v17, splat (double 0x4006000000000000)
  %v20 = fdiv <8 x double> %v18, %v19
  %v21 = fmul <8 x double> %v17, %v17
  %v22 = fneg <8 x double> %v21
  %v23 = fcmp ogt <8 x double> %v22, splat (double 0x4086380000000000)
  %v24 = select <8 x i1> %v23, <8 x double> splat (double 0x4086380000000000), <8 x double> %v22
  %v25 = fcmp olt <8 x double> %v24, splat (double 0xC096293333333333)
  %v26 = select <8 x i1> %v25, <8 x double> splat (double 0xC096293333333333), <8 x double> %v24
  %v27 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v26, <8 x double> splat (double 0x3FF71547652B82FE), <8 x double> splat (double 0x4338000000000000))
  %v28 = fsub <8 x double> %v27, splat (double 0x4338000000000000)
  %v29 = bitcast <8 x double> %v27 to <8 x i64>
  %v30 = sub <8 x i64> %v29, splat (i64 4843621399236968448)
  %v31 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v28, <8 x double> splat (double 0xBFE62E42FEE00000), <8 x double> %v26)
  %v32 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v28, <8 x double> splat (double 0xBDEA39EF35793C76), <8 x double> %v31)
  %v33 = fmul <8 x double> %v32, %v32
  %v34 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x3DE61BFA83DD7873), <8 x double> %v32, <8 x double> splat (double 0x3E21F7F25B04B0D4))
  %v35 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v34, <8 x double> %v32, <8 x double> splat (double 0x3E5AE642C83E9462))
  %v36 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v35, <8 x double> %v32, <8 x double> splat (double 0x3E927E4D41A5CA90))
  %v37 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v36, <8 x double> %v32, <8 x double> splat (double 0x3EC71DE3A5AA78A7))
  %v38 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v37, <8 x double> %v32, <8 x double> splat (double 0x3EFA01A01A9E935E))
  %v39 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v38, <8 x double> %v32, <8 x double> splat (double 0x3F2A01A01A0196AD))
  %v40 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v39, <8 x double> %v32, <8 x double> splat (double 0x3F56C16C16C15A69))
  %v41 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v40, <8 x double> %v32, <8 x double> splat (double 0x3F81111111111111))
  %v42 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v41, <8 x double> %v32, <8 x double> splat (double 0x3FA5555555555557))
  %v43 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v42, <8 x double> %v32, <8 x double> splat (double 0x3FC5555555555555))
  %v44 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v43, <8 x double> %v32, <8 x double> splat (double 0x3FE0000000000000))
  %v45 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v33, <8 x double> %v44, <8 x double> %v32)
  %v46 = fadd <8 x double> %v45, splat (double 0x3FF0000000000000)
  %v47 = ashr <8 x i64> %v30, splat (i64 1)
  %v48 = add <8 x i64> %v47, splat (i64 1023)
  %v49 = shl <8 x i64> %v48, splat (i64 52)
  %v50 = bitcast <8 x i64> %v49 to <8 x double>
  %v51 = fmul <8 x double> %v46, %v50
  %v52 = sub <8 x i64> %v30, %v47
  %v53 = add <8 x i64> %v52, splat (i64 1023)
  %v54 = shl <8 x i64> %v53, splat (i64 52)
  %v55 = bitcast <8 x i64> %v54 to <8 x double>
  %v56 = fmul <8 x double> %v51, %v55
  %v57 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x3EA327894C1A092E), <8 x double> %v20, <8 x double> splat (double 0x3EA89A530C2CB240))
  %v58 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v57, <8 x double> %v20, <8 x double> splat (double 0xBECA10AB273C918B))
  %v59 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v58, <8 x double> %v20, <8 x double> splat (double 0xBED95F1C3C93C27F))
  %v60 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v59, <8 x double> %v20, <8 x double> splat (double 0x3EF25871EA5FADB2))
  %v61 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v60, <8 x double> %v20, <8 x double> splat (double 0x3F056D11151DF379))
  %v62 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v61, <8 x double> %v20, <8 x double> splat (double 0xBF21537C17FDF3E6))
  %v63 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v62, <8 x double> %v20, <8 x double> splat (double 0xBF2E26502FEA0D88))
  %v64 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v63, <8 x double> %v20, <8 x double> splat (double 0x3F5608CB75395588))
  %v65 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v64, <8 x double> %v20, <8 x double> splat (double 0xBF29249C232732B2))
  %v66 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v65, <8 x double> %v20, <8 x double> splat (double 0xBF8C05D32503BE89))
  %v67 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v66, <8 x double> %v20, <8 x double> splat (double 0x3FAD1951FB1C28FA))
  %v68 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v67, <8 x double> %v20, <8 x double> splat (double 0xBFC1E2EBEFB60ED9))
  %v69 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v68, <8 x double> %v20, <8 x double> splat (double 0x3FCFFC68DEF8D297))
  %v70 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v69, <8 x double> %v20, <8 x double> splat (double 0xBFD6427851A620D2))
  %v71 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v70, <8 x double> %v20, <8 x double> splat (double 0x3FC8C9EB68FF27D7))
  %v72 = fmul <8 x double> %v56, %v71
  %v73 = fcmp olt <8 x double> %v0, splat (double 0x3FF0000000000000)
  %v74 = fsub <8 x double> splat (double 0x3FF0000000000000), %v72
  %v75 = select <8 x i1> %v73, <8 x double> %v13, <8 x double> %v74
  %v76 = call <8 x double> @llvm.copysign.v8f64(<8 x double> %v75, <8 x double> %x0)
  ret <8 x double> %v76
}

define internal <8 x double> @aotc.erfc.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = fmul <8 x double> %x0, %x0
  %v1 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0xBE0AC9585A44FE29), <8 x double> %v0, <8 x double> splat (double 0x3E4D76AF6CA49787))
  %v2 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v1, <8 x double> %v0, <8 x double> splat (double 0xBE85C131500D3F88))
  %v3 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v2, <8 x double> %v0, <8 x double> splat (double 0x3EBB981D78881A5D))
  %v4 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v3, <8 x double> %v0, <8 x double> splat (double 0xBEEF4CA838ADB73B))
  %v5 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v4, <8 x double> %v0, <8 x double> splat (double 0x3F1F9A2BE4F731A1))
  %v6 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v5, <8 x double> %v0, <8 x double> splat (double 0xBF4C02DB0665E53D))
  %v7 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v6, <8 x double> %v0, <8 x double> splat (double 0x3F7565BCCFA44156))
  %v8 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v7, <8 x double> %v0, <8 x double> splat (double 0xBF9B82CE31203772))
  %v9 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v8, <8 x double> %v0, <8 x double> splat (double 0x3FBCE2F21A040F66))
  %v10 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v9, <8 x double> %v0, <8 x double> splat (double 0xBFD812746B0379C1))
  %v11 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v10, <8 x double> %v0, <8 x double> splat (double 0x3FC06EBA8214DB68))
  %v12 = call <8 x double> @llvm.fma.v8f64(<8 x double> %x0, <8 x double> %v11, <8 x double> %x0)
  %v13 = fsub <8 x double> splat (double 0x3FF0000000000000), %v12
  %v14 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x0)
  %v15 = fcmp ogt <8 x double> %v14, splat (double 0x403B4CCCCCCCCCCD)
  %v16 = select <8 x i1> %v15, <8 x double> splat (double 0x403B4CCCCCCCCCCD), <8 x double> %v14
  %v17 = fsub <8 x double> %v16, splat (double 0x400E000000000000)
  %v18 = fadd <8 x double> %v16, splat (double 0x400E000000000000)
  %v19 = fdiv <8 x double> %v17, %v18
  %v20 = fmul <8 x double> %v16, %v16
  %v21 = fneg <8 x double> %v20
  %v22 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v16, <8 x double> %v16, <8 x double> %v21)
  %v23 = fneg <8 x double> %v20
  %v24 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v23, <8 x double> splat (double 0x3FF71547652B82FE), <8 x double> splat (double 0x4338000000000000))
  %v25 = fsub <8 x double> %v24, splat (double 0x4338000000000000)
  %v26 = bitcast <8 x double> %v24 to <8 x i64>
  %v27 = sub <8 x i64> %v26, splat (i64 4843621399236968448)
  %v28 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v25, <8 x double> splat (double 0xBFE62E42FEE00000), <8 x double> %v23)
  %v29 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v25, <8 x double> splat (double 0xBDEA39EF35793C76), <8 x double> %v28)
  %v30 = fsub <8 x double> %v29, %v22
  %v31 = fmul <8 x double> %v30, %v30
  %v32 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x3DE61BFA83DD7873), <8 x double> %v30, <8 x double> splat (double 0x3E21F7F25B04B0D4))
  %v33 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v32, <8 x double> %v30, <8 x double> splat (double 0x3E5AE642C83E9462))
  %v34 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v33, <8 x double> %v30, <8 x double> splat (double 0x3E927E4D41A5CA90))
  %v35 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v34, <8 x double> %v30, <8 x double> splat (double 0x3EC71DE3A5AA78A7))
  %v36 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v35, <8 x double> %v30, <8 x double> splat (double 0x3EFA01A01A9E935E))
  %v37 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v36, <8 x double> %v30, <8 x double> splat (double 0x3F2A01A01A0196AD))
  %v38 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v37, <8 x double> %v30, <8 x double> splat (double 0x3F56C16C16C15A69))
  %v39 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v38, <8 x double> %v30, <8 x double> splat (double 0x3F81111111111111))
  %v40 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v39, <8 x double> %v30, <8 x double> splat (double 0x3FA5555555555557))
  %v41 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v40, <8 x double> %v30, <8 x double> splat (double 0x3FC5555555555555))
  %v42 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v41, <8 x double> %v30, <8 x double> splat (double 0x3FE0000000000000))
  %v43 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v31, <8 x double> %v42, <8 x double> %v30)
  %v44 = fadd <8 x double> %v43, splat (double 0x3FF0000000000000)
  %v45 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0xBE264E3CEB382FA5), <8 x double> %v19, <8 x double> splat (double 0x3E5A901B7FF55FA5))
  %v46 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v45, <8 x double> %v19, <8 x double> splat (double 0x3E571869EF8D8F32))
  %v47 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v46, <8 x double> %v19, <8 x double> splat (double 0xBE902891A28EFE97))
  %v48 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v47, <8 x double> %v19, <8 x double> splat (double 0xBE6DF1AF1FC5B59F))
  %v49 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v48, <8 x double> %v19, <8 x double> splat (double 0x3EBD2A108A3A068E))
  %v50 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v49, <8 x double> %v19, <8 x double> splat (double 0xBEB058589684B0E3))
  %v51 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v50, <8 x double> %v19, <8 x double> splat (double 0xBEE7FCB3CD50145B))
  %v52 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v51, <8 x double> %v19, <8 x double> splat (double 0x3EF778C587D19BF9))
  %v53 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v52, <8 x double> %v19, <8 x double> splat (double 0x3F0B13F9CE2FE9F0))
  %v54 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v53, <8 x double> %v19, <8 x double> splat (double 0xBF3303FA5DB8CB3F))
  %v55 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v54, <8 x double> %v19, <8 x double> splat (double 0x3F333FB41CDE2C8C))
  %v56 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v55, <8 x double> %v19, <8 x double> splat (double 0x3F5CC3A0E72675E7))
  %v57 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v56, <8 x double> %v19, <8 x double> splat (double 0xBF83F603C50A6A31))
  %v58 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v57, <8 x double> %v19, <8 x double> splat (double 0x3F9D0B0037D56BC9))
  %v59 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v58, <8 x double> %v19, <8 x double> splat (double 0xBFAE0D0FA6D7B14C))
  %v60 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v59, <8 x double> %v19, <8 x double> splat (double 0x3FB7A14188A9B307))
  %v61 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v60, <8 x double> %v19, <8 x double> splat (double 0xBFBBDA9309A2B04B))
  %v62 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v61, <8 x double> %v19, <8 x double> splat (double 0x3FB510169D096775))
  %v63 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v62, <8 x double> %v19, <8 x double> splat (double 0x3F6D5F294815AF91))
  %v64 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v63, <8 x double> %v19, <8 x double> splat (double 0xBFC1F367683F89A6))
  %v65 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v64, <8 x double> %v19, <8 x double> splat (double 0x3FF3CCDA0B5D5DC2))
  %v66 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v16, <8 x double> splat (double 0x4000000000000000), <8 x double> splat (double 0x3FF0000000000000))
  %v67 = fdiv <8 x double> %v65, %v66
  %v68 = fmul <8 x double> %v44, %v67
  %v69 = ashr <8 x i64> %v27, splat (i64 1)
  %v70 = add <8 x i64> %v69, splat (i64 1023)
  %v71 = shl <8 x i64> %v70, splat (i64 52)
  %v72 = bitcast <8 x i64> %v71 to <8 x double>
  %v73 = fmul <8 x double> %v68, %v72
  %v74 = sub <8 x i64> %v27, %v69
  %v75 = add <8 x i64> %v74, splat (i64 1023)
  %v76 = shl <8 x i64> %v75, splat (i64 52)
  %v77 = bitcast <8 x i64> %v76 to <8 x double>
  %v78 = fmul <8 x double> %v73, %v77
  %v79 = fcmp olt <8 x double> %x0, splat (double 0x0000000000000000)
  %v80 = fsub <8 x double> splat (double 0x4000000000000000), %v78
  %v81 = select <8 x i1> %v79, <8 x double> %v80, <8 x double> %v78
  %v82 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x0)
  %v83 = fcmp olt <8 x double> %v82, splat (double 0x3FE0000000000000)
  %v84 = select <8 x i1> %v83, <8 x double> %v13, <8 x double> %v81
  ret <8 x double> %v84
}

define internal <8 x double> @aotc.exp.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = fcmp ogt <8 x double> %x0, splat (double 0x4086380000000000)
  %v1 = select <8 x i1> %v0, <8 x double> splat (double 0x4086380000000000), <8 x double> %x0
  %v2 = fcmp olt <8 x double> %v1, splat (double 0xC096293333333333)
  %v3 = select <8 x i1> %v2, <8 x double> splat (double 0xC096293333333333), <8 x double> %v1
  %v4 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v3, <8 x double> splat (double 0x3FF71547652B82FE), <8 x double> splat (double 0x4338000000000000))
  %v5 = fsub <8 x double> %v4, splat (double 0x4338000000000000)
  %v6 = bitcast <8 x double> %v4 to <8 x i64>
  %v7 = sub <8 x i64> %v6, splat (i64 4843621399236968448)
  %v8 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v5, <8 x double> splat (double 0xBFE62E42FEE00000), <8 x double> %v3)
  %v9 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v5, <8 x double> splat (double 0xBDEA39EF35793C76), <8 x double> %v8)
  %v10 = fmul <8 x double> %v9, %v9
  %v11 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x3DE61BFA83DD7873), <8 x double> %v9, <8 x double> splat (double 0x3E21F7F25B04B0D4))
  %v12 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v11, <8 x double> %v9, <8 x double> splat (double 0x3E5AE642C83E9462))
  %v13 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v12, <8 x double> %v9, <8 x double> splat (double 0x3E927E4D41A5CA90))
  %v14 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v13, <8 x double> %v9, <8 x double> splat (double 0x3EC71DE3A5AA78A7))
  %v15 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v14, <8 x double> %v9, <8 x double> splat (double 0x3EFA01A01A9E935E))
  %v16 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v15, <8 x double> %v9, <8 x double> splat (double 0x3F2A01A01A0196AD))
  %v17 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v16, <8 x double> %v9, <8 x double> splat (double 0x3F56C16C16C15A69))
  %v18 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v17, <8 x double> %v9, <8 x double> splat (double 0x3F81111111111111))
  %v19 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v18, <8 x double> %v9, <8 x double> splat (double 0x3FA5555555555557))
  %v20 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v19, <8 x double> %v9, <8 x double> splat (double 0x3FC5555555555555))
  %v21 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v20, <8 x double> %v9, <8 x double> splat (double 0x3FE0000000000000))
  %v22 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v10, <8 x double> %v21, <8 x double> %v9)
  %v23 = fadd <8 x double> %v22, splat (double 0x3FF0000000000000)
  %v24 = ashr <8 x i64> %v7, splat (i64 1)
  %v25 = add <8 x i64> %v24, splat (i64 1023)
  %v26 = shl <8 x i64> %v25, splat (i64 52)
  %v27 = bitcast <8 x i64> %v26 to <8 x double>
  %v28 = fmul <8 x double> %v23, %v27
  %v29 = sub <8 x i64> %v7, %v24
  %v30 = add <8 x i64> %v29, splat (i64 1023)
  %v31 = shl <8 x i64> %v30, splat (i64 52)
  %v32 = bitcast <8 x i64> %v31 to <8 x double>
  %v33 = fmul <8 x double> %v28, %v32
  ret <8 x double> %v33
}

define internal <8 x double> @aotc.exp2.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = fcmp ogt <8 x double> %x0, splat (double 0x4090040000000000)
  %v1 = select <8 x i1> %v0, <8 x double> splat (double 0x4090040000000000), <8 x double> %x0
  %v2 = fcmp olt <8 x double> %v1, splat (double 0xC09FF80000000000)
  %v3 = select <8 x i1> %v2, <8 x double> splat (double 0xC09FF80000000000), <8 x double> %v1
  %v4 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v3, <8 x double> splat (double 0x3FF0000000000000), <8 x double> splat (double 0x4338000000000000))
  %v5 = fsub <8 x double> %v4, splat (double 0x4338000000000000)
  %v6 = bitcast <8 x double> %v4 to <8 x i64>
  %v7 = sub <8 x i64> %v6, splat (i64 4843621399236968448)
  %v8 = fsub <8 x double> %v3, %v5
  %v9 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x3DBC4A29324A1038), <8 x double> %v8, <8 x double> splat (double 0x3DFE9EC1FCB69A7F))
  %v10 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v9, <8 x double> %v8, <8 x double> splat (double 0x3E3E4CF10DEC0F59))
  %v11 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v10, <8 x double> %v8, <8 x double> splat (double 0x3E7B524EBD13A55F))
  %v12 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v11, <8 x double> %v8, <8 x double> splat (double 0x3EB62C02242B879C))
  %v13 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v12, <8 x double> %v8, <8 x double> splat (double 0x3EEFFCBFC6DA6ED1))
  %v14 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v13, <8 x double> %v8, <8 x double> splat (double 0x3F2430912F86B7DB))
  %v15 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v14, <8 x double> %v8, <8 x double> splat (double 0x3F55D87FE78A3F9C))
  %v16 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v15, <8 x double> %v8, <8 x double> splat (double 0x3F83B2AB6FBA4E79))
  %v17 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v16, <8 x double> %v8, <8 x double> splat (double 0x3FAC6B08D704A0C6))
  %v18 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v17, <8 x double> %v8, <8 x double> splat (double 0x3FCEBFBDFF82C58F))
  %v19 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v18, <8 x double> %v8, <8 x double> splat (double 0x3FE62E42FEFA39EF))
  %v20 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v8, <8 x double> %v19, <8 x double> splat (double 0x3FF0000000000000))
  %v21 = ashr <8 x i64> %v7, splat (i64 1)
  %v22 = add <8 x i64> %v21, splat (i64 1023)
  %v23 = shl <8 x i64> %v22, splat (i64 52)
  %v24 = bitcast <8 x i64> %v23 to <8 x double>
  %v25 = fmul <8 x double> %v20, %v24
  %v26 = sub <8 x i64> %v7, %v21
  %v27 = add <8 x i64> %v26, splat (i64 1023)
  %v28 = shl <8 x i64> %v27, splat (i64 52)
  %v29 = bitcast <8 x i64> %v28 to <8 x double>
  %v30 = fmul <8 x double> %v25, %v29
  ret <8 x double> %v30
}

define internal <8 x double> @aotc.expm1.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = fcmp ogt <8 x double> %x0, splat (double 0x4086300000000000)
  %v1 = select <8 x i1> %v0, <8 x double> splat (double 0x4086300000000000), <8 x double> %x0
  %v2 = fcmp olt <8 x double> %v1, splat (double 0xC044000000000000)
  %v3 = select <8 x i1> %v2, <8 x double> splat (double 0xC044000000000000), <8 x double> %v1
  %v4 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v3, <8 x double> splat (double 0x3FF71547652B82FE), <8 x double> splat (double 0x4338000000000000))
  %v5 = fsub <8 x double> %v4, splat (double 0x4338000000000000)
  %v6 = bitcast <8 x double> %v4 to <8 x i64>
  %v7 = sub <8 x i64> %v6, splat (i64 4843621399236968448)
  %v8 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v5, <8 x double> splat (double 0xBFE62E42FEE00000), <8 x double> %v3)
  %v9 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v5, <8 x double> splat (double 0xBDEA39EF35793C76), <8 x double> %v8)
  %v10 = fmul <8 x double> %v9, %v9
  %v11 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x3DE61BFA83DD7873), <8 x double> %v9, <8 x double> splat (double 0x3E21F7F25B04B0D4))
  %v12 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v11, <8 x double> %v9, <8 x double> splat (double 0x3E5AE642C83E9462))
  %v13 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v12, <8 x double> %v9, <8 x double> splat (double 0x3E927E4D41A5CA90))
  %v14 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v13, <8 x double> %v9, <8 x double> splat (double 0x3EC71DE3A5AA78A7))
  %v15 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v14, <8 x double> %v9, <8 x double> splat (double 0x3EFA01A01A9E935E))
  %v16 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v15, <8 x double> %v9, <8 x double> splat (double 0x3F2A01A01A0196AD))
  %v17 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v16, <8 x double> %v9, <8 x double> splat (double 0x3F56C16C16C15A69))
  %v18 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v17, <8 x double> %v9, <8 x double> splat (double 0x3F81111111111111))
  %v19 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v18, <8 x double> %v9, <8 x double> splat (double 0x3FA5555555555557))
  %v20 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v19, <8 x double> %v9, <8 x double> splat (double 0x3FC5555555555555))
  %v21 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v20, <8 x double> %v9, <8 x double> splat (double 0x3FE0000000000000))
  %v22 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v10, <8 x double> %v21, <8 x double> %v9)
  %v23 = sub <8 x i64> %v7, splat (i64 1)
  %v24 = add <8 x i64> %v23, splat (i64 1023)
  %v25 = shl <8 x i64> %v24, splat (i64 52)
  %v26 = bitcast <8 x i64> %v25 to <8 x double>
  %v27 = fsub <8 x double> %v26, splat (double 0x3FE0000000000000)
  %v28 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v26, <8 x double> %v22, <8 x double> %v27)
  %v29 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x0)
  %v30 = fcmp olt <8 x double> %v29, splat (double 0x03B8F2B061AEA072)
  %v31 = fadd <8 x double> %v28, %v28
  %v32 = select <8 x i1> %v30, <8 x double> %x0, <8 x double> %v31
  ret <8 x double> %v32
}

define internal <8 x double> @aotc.floor.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <8 x double> @llvm.floor.v8f64(<8 x double> %x0)
  ret <8 x double> %v0
}

define internal <8 x double> @aotc.fmod.v8f64(<8 x double> %given0, <8 x double> %given1) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %x0 = freeze <8 x double> %given0
  %x1 = freeze <8 x double> %given1
  %v0 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x0)
  %v1 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x1)
  %v2 = fdiv <8 x double> %v0, %v1
  %v3 = call <8 x double> @llvm.trunc.v8f64(<8 x double> %v2)
  %v4 = fneg <8 x double> %v1
  %v5 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v3, <8 x double> %v4, <8 x double> %v0)
  %v6 = fcmp ogt <8 x double> %v2, splat (double 0x4330000000000000)
  %v7 = call i1 @llvm.vector.reduce.or.v8i1(<8 x i1> %v6)
  br i1 %v7, label %again8, label %after8
again8:
  %v10 = phi <8 x double> [ %v0, %entry ], [ %v24, %again8 ]
  %v11 = fdiv <8 x double> %v10, %v1
  %v12 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %v11)
  %v13 = fcmp oeq <8 x double> %v12, splat (double 0x7FF0000000000000)
  %v14 = fmul <8 x double> %v1, splat (double 0x7E70000000000000)
  %v15 = select <8 x i1> %v13, <8 x double> %v14, <8 x double> %v1
  %v16 = fdiv <8 x double> %v10, %v15
  %v17 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %v16)
  %v18 = fcmp oeq <8 x double> %v17, splat (double 0x7FF0000000000000)
  %v19 = fmul <8 x double> %v15, splat (double 0x7E70000000000000)
  %v20 = select <8 x i1> %v18, <8 x double> %v19, <8 x double> %v15
  %v21 = fdiv <8 x double> %v10, %v20
  %v22 = call <8 x double> @llvm.trunc.v8f64(<8 x double> %v21)
  %v23 = fneg <8 x double> %v20
  %v24 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v22, <8 x double> %v23, <8 x double> %v10)
  %v25 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %v24)
  %v26 = fcmp oge <8 x double> %v25, %v1
  %v27 = call i1 @llvm.vector.reduce.or.v8i1(<8 x i1> %v26)
  br i1 %v27, label %again8, label %after8
after8:
  %v30 = phi <8 x double> [ %v5, %entry ], [ %v24, %again8 ]
  %v31 = fcmp olt <8 x double> %v30, splat (double 0x0000000000000000)
  %v32 = fadd <8 x double> %v30, %v1
  %v33 = select <8 x i1> %v31, <8 x double> %v32, <8 x double> %v30
  %v34 = fcmp olt <8 x double> %v0, %v1
  %v35 = select <8 x i1> %v34, <8 x double> %v0, <8 x double> %v33
  %v36 = call <8 x double> @llvm.copysign.v8f64(<8 x double> %v35, <8 x double> %x0)
  ret <8 x double> %v36
}

define internal <8 x double> @aotc.log.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = fcmp olt <8 x double> %x0, splat (double 0x0010000000000000)
  %v1 = fmul <8 x double> %x0, splat (double 0x4350000000000000)
  %v2 = select <8 x i1> %v0, <8 x double> %v1, <8 x double> %x0
  %v3 = bitcast <8 x double> %v2 to <8 x i64>
  %v4 = sub <8 x i64> %v3, splat (i64 4604544271217802189)
  %v5 = ashr <8 x i64> %v4, splat (i64 52)
  %v6 = shl <8 x i64> %v5, splat (i64 52)
  %v7 = sub <8 x i64> %v3, %v6
  %v8 = bitcast <8 x i64> %v7 to <8 x double>
  %v9 = fsub <8 x double> %v8, splat (double 0x3FF0000000000000)
  %v10 = add <8 x i64> %v5, splat (i64 4843621399236968448)
  %v11 = bitcast <8 x i64> %v10 to <8 x double>
  %v12 = fsub <8 x double> %v11, splat (double 0x4338000000000000)
  %v13 = fsub <8 x double> %v12, splat (double 0x404B000000000000)
  %v14 = select <8 x i1> %v0, <8 x double> %v13, <8 x double> %v12
  %v15 = fadd <8 x double> %v9, splat (double 0x4000000000000000)
  %v16 = fdiv <8 x double> %v9, %v15
  %v17 = fmul <8 x double> %v16, %v16
  %v18 = fmul <8 x double> %v9, %v9
  %v19 = fmul <8 x double> %v18, splat (double 0x3FE0000000000000)
  %v20 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x3FC2B58F4C8D5F63), <8 x double> %v17, <8 x double> splat (double 0x3FC39FE52A20DC69))
  %v21 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v20, <8 x double> %v17, <8 x double> splat (double 0x3FC7462B5152E8A6))
  %v22 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v21, <8 x double> %v17, <8 x double> splat (double 0x3FCC71C62E40B94E))
  %v23 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v22, <8 x double> %v17, <8 x double> splat (double 0x3FD2492492DF26CE))
  %v24 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v23, <8 x double> %v17, <8 x double> splat (double 0x3FD99999999952D8))
  %v25 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v24, <8 x double> %v17, <8 x double> splat (double 0x3FE5555555555558))
  %v26 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v17, <8 x double> %v25, <8 x double> %v19)
  %v27 = fmul <8 x double> %v16, %v26
  %v28 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v14, <8 x double> splat (double 0x3DEA39EF35793C76), <8 x double> %v27)
  %v29 = fsub <8 x double> %v19, %v28
  %v30 = fsub <8 x double> %v9, %v29
  %v31 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v14, <8 x double> splat (double 0x3FE62E42FEE00000), <8 x double> %v30)
  %v32 = fcmp olt <8 x double> %x0, splat (double 0x7FF0000000000000)
  %v33 = select <8 x i1> %v32, <8 x double> %v31, <8 x double> %x0
  %v34 = fcmp olt <8 x double> %x0, splat (double 0x0000000000000000)
  %v35 = select <8 x i1> %v34, <8 x double> splat (double 0x7FF8000000000000), <8 x double> %v33
  %v36 = fcmp oeq <8 x double> %x0, splat (double 0x0000000000000000)
  %v37 = select <8 x i1> %v36, <8 x double> splat (double 0xFFF0000000000000), <8 x double> %v35
  ret <8 x double> %v37
}

define internal <8 x double> @aotc.log1p.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = fadd <8 x double> %x0, splat (double 0x3FF0000000000000)
  %v1 = fsub <8 x double> %v0, splat (double 0x3FF0000000000000)
  %v2 = fsub <8 x double> %x0, %v1
  %v3 = bitcast <8 x double> %v0 to <8 x i64>
  %v4 = sub <8 x i64> %v3, splat (i64 4604544271217802189)
  %v5 = ashr <8 x i64> %v4, splat (i64 52)
  %v6 = shl <8 x i64> %v5, splat (i64 52)
  %v7 = sub <8 x i64> %v3, %v6
  %v8 = bitcast <8 x i64> %v7 to <8 x double>
  %v9 = fsub <8 x double> %v8, splat (double 0x3FF0000000000000)
  %v10 = fmul <8 x double> %v2, splat (double 0x3FE0000000000000)
  %v11 = sub <8 x i64> splat (i64 1), %v5
  %v12 = add <8 x i64> %v11, splat (i64 1023)
  %v13 = shl <8 x i64> %v12, splat (i64 52)
  %v14 = bitcast <8 x i64> %v13 to <8 x double>
  %v15 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v10, <8 x double> %v14, <8 x double> %v9)
  %v16 = add <8 x i64> %v5, splat (i64 4843621399236968448)
  %v17 = bitcast <8 x i64> %v16 to <8 x double>
  %v18 = fsub <8 x double> %v17, splat (double 0x4338000000000000)
  %v19 = fadd <8 x double> %v15, splat (double 0x4000000000000000)
  %v20 = fdiv <8 x double> %v15, %v19
  %v21 = fmul <8 x double> %v20, %v20
  %v22 = fmul <8 x double> %v15, %v15
  %v23 = fmul <8 x double> %v22, splat (double 0x3FE0000000000000)
  %v24 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x3FC2B58F4C8D5F63), <8 x double> %v21, <8 x double> splat (double 0x3FC39FE52A20DC69))
  %v25 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v24, <8 x double> %v21, <8 x double> splat (double 0x3FC7462B5152E8A6))
  %v26 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v25, <8 x double> %v21, <8 x double> splat (double 0x3FCC71C62E40B94E))
  %v27 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v26, <8 x double> %v21, <8 x double> splat (double 0x3FD2492492DF26CE))
  %v28 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v27, <8 x double> %v21, <8 x double> splat (double 0x3FD99999999952D8))
  %v29 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v28, <8 x double> %v21, <8 x double> splat (double 0x3FE5555555555558))
  %v30 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v21, <8 x double> %v29, <8 x double> %v23)
  %v31 = fmul <8 x double> %v20, %v30
  %v32 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v18, <8 x double> splat (double 0x3DEA39EF35793C76), <8 x double> %v31)
  %v33 = fsub <8 x double> %v23, %v32
  %v34 = fsub <8 x double> %v15, %v33
  %v35 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v18, <8 x double> splat (double 0x3FE62E42FEE00000), <8 x double> %v34)
  %v36 = fcmp olt <8 x double> %v0, splat (double 0x7FF0000000000000)
  %v37 = select <8 x i1> %v36, <8 x double> %v35, <8 x double> %v0
  %v38 = fcmp olt <8 x double> %v0, splat (double 0x0000000000000000)
  %v39 = select <8 x i1> %v38, <8 x double> splat (double 0x7FF8000000000000), <8 x double> %v37
  %v40 = fcmp oeq <8 x double> %v0, splat (double 0x0000000000000000)
  %v41 = select <8 x i1> %v40, <8 x double> splat (double 0xFFF0000000000000), <8 x double> %v39
  %v42 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x0)
  %v43 = fcmp olt <8 x double> %v42, splat (double 0x03B8F2B061AEA072)
  %v44 = select <8 x i1> %v43, <8 x double> %x0, <8 x double> %v41
  ret <8 x double> %v44
}

define internal <8 x double> @aotc.log2.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = fcmp olt <8 x double> %x0, splat (double 0x0010000000000000)
  %v1 = fmul <8 x double> %x0, splat (double 0x4350000000000000)
  %v2 = select <8 x i1> %v0, <8 x double> %v1, <8 x double> %x0
  %v3 = bitcast <8 x double> %v2 to <8 x i64>
  %v4 = sub <8 x i64> %v3, splat (i64 4604544271217802189)
  %v5 = ashr <8 x i64> %v4, splat (i64 52)
  %v6 = shl <8 x i64> %v5, splat (i64 52)
  %v7 = sub <8 x i64> %v3, %v6
  %v8 = bitcast <8 x i64> %v7 to <8 x double>
  %v9 = fsub <8 x double> %v8, splat (double 0x3FF0000000000000)
  %v10 = add <8 x i64> %v5, splat (i64 4843621399236968448)
  %v11 = bitcast <8 x i64> %v10 to <8 x double>
  %v12 = fsub <8 x double> %v11, splat (double 0x4338000000000000)
  %v13 = fsub <8 x double> %v12, splat (double 0x404B000000000000)
  %v14 = select <8 x i1> %v0, <8 x double> %v13, <8 x double> %v12
  %v15 = fadd <8 x double> %v9, splat (double 0x4000000000000000)
  %v16 = fdiv <8 x double> %v9, %v15
  %v17 = fmul <8 x double> %v16, %v16
  %v18 = fmul <8 x double> %v9, %v9
  %v19 = fmul <8 x double> %v18, splat (double 0x3FE0000000000000)
  %v20 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x3FC2B58F4C8D5F63), <8 x double> %v17, <8 x double> splat (double 0x3FC39FE52A20DC69))
  %v21 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v20, <8 x double> %v17, <8 x double> splat (double 0x3FC7462B5152E8A6))
  %v22 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v21, <8 x double> %v17, <8 x double> splat (double 0x3FCC71C62E40B94E))
  %v23 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v22, <8 x double> %v17, <8 x double> splat (double 0x3FD2492492DF26CE))
  %v24 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v23, <8 x double> %v17, <8 x double> splat (double 0x3FD99999999952D8))
  %v25 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v24, <8 x double> %v17, <8 x double> splat (double 0x3FE5555555555558))
  %v26 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v17, <8 x double> %v25, <8 x double> %v19)
  %v27 = fmul <8 x double> %v16, %v26
  %v28 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x0000000000000000), <8 x double> splat (double 0x3DEA39EF35793C76), <8 x double> %v27)
  %v29 = fsub <8 x double> %v19, %v28
  %v30 = fsub <8 x double> %v9, %v29
  %v31 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x0000000000000000), <8 x double> splat (double 0x3FE62E42FEE00000), <8 x double> %v30)
  %v32 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v31, <8 x double> splat (double 0x3C7777D0FFDA0D24), <8 x double> %v14)
  %v33 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v31, <8 x double> splat (double 0x3FF71547652B82FE), <8 x double> %v32)
  %v34 = fcmp olt <8 x double> %x0, splat (double 0x7FF0000000000000)
  %v35 = select <8 x i1> %v34, <8 x double> %v33, <8 x double> %x0
  %v36 = fcmp olt <8 x double> %x0, splat (double 0x0000000000000000)
  %v37 = select <8 x i1> %v36, <8 x double> splat (double 0x7FF8000000000000), <8 x double> %v35
  %v38 = fcmp oeq <8 x double> %x0, splat (double 0x0000000000000000)
  %v39 = select <8 x i1> %v38, <8 x double> splat (double 0xFFF0000000000000), <8 x double> %v37
  ret <8 x double> %v39
}

define internal <8 x double> @aotc.pow.v8f64(<8 x double> %x0, <8 x double> %x1) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x0)
  %v1 = fcmp olt <8 x double> %v0, splat (double 0x0010000000000000)
  %v2 = fmul <8 x double> %v0, splat (double 0x4350000000000000)
  %v3 = select <8 x i1> %v1, <8 x double> %v2, <8 x double> %v0
  %v4 = bitcast <8 x double> %v3 to <8 x i64>
  %v5 = sub <8 x i64> %v4, splat (i64 4604544271217802189)
  %v6 = ashr <8 x i64> %v5, splat (i64 52)
  %v7 = shl <8 x i64> %v6, splat (i64 52)
  %v8 = sub <8 x i64> %v4, %v7
  %v9 = bitcast <8 x i64> %v8 to <8 x double>
  %v10 = fsub <8 x double> %v9, splat (double 0x3FF0000000000000)
  %v11 = add <8 x i64> %v6, splat (i64 4843621399236968448)
  %v12 = bitcast <8 x i64> %v11 to <8 x double>
  %v13 = fsub <8 x double> %v12, splat (double 0x4338000000000000)
  %v14 = fsub <8 x double> %v13, splat (double 0x404B000000000000)
  %v15 = select <8 x i1> %v1, <8 x double> %v14, <8 x double> %v13
  %v16 = fadd <8 x double> %v10, splat (double 0x4000000000000000)
  %v17 = fdiv <8 x double> %v10, %v16
  %v18 = fneg <8 x double> %v16
  %v19 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v17, <8 x double> %v18, <8 x double> %v10)
  %v20 = fsub <8 x double> %v16, splat (double 0x4000000000000000)
  %v21 = fsub <8 x double> %v10, %v20
  %v22 = fmul <8 x double> %v17, %v21
  %v23 = fsub <8 x double> %v19, %v22
  %v24 = fdiv <8 x double> %v23, %v16
  %v25 = fmul <8 x double> %v17, %v17
  %v26 = fneg <8 x double> %v25
  %v27 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v17, <8 x double> %v17, <8 x double> %v26)
  %v28 = fadd <8 x double> %v17, %v17
  %v29 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v28, <8 x double> %v24, <8 x double> %v27)
  %v30 = fmul <8 x double> %v25, %v17
  %v31 = fneg <8 x double> %v30
  %v32 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v25, <8 x double> %v17, <8 x double> %v31)
  %v33 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v17, <8 x double> %v29, <8 x double> %v32)
  %v34 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v25, <8 x double> %v24, <8 x double> %v33)
  %v35 = fmul <8 x double> %v30, splat (double 0x3FE5555555555555)
  %v36 = fneg <8 x double> %v35
  %v37 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v30, <8 x double> splat (double 0x3FE5555555555555), <8 x double> %v36)
  %v38 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x3FB0842108421084), <8 x double> %v25, <8 x double> splat (double 0x3FB1A7B9611A7B96))
  %v39 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v38, <8 x double> %v25, <8 x double> splat (double 0x3FB2F684BDA12F68))
  %v40 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v39, <8 x double> %v25, <8 x double> splat (double 0x3FB47AE147AE147B))
  %v41 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v40, <8 x double> %v25, <8 x double> splat (double 0x3FB642C8590B2164))
  %v42 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v41, <8 x double> %v25, <8 x double> splat (double 0x3FB8618618618618))
  %v43 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v42, <8 x double> %v25, <8 x double> splat (double 0x3FBAF286BCA1AF28))
  %v44 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v43, <8 x double> %v25, <8 x double> splat (double 0x3FBE1E1E1E1E1E1E))
  %v45 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v44, <8 x double> %v25, <8 x double> splat (double 0x3FC1111111111111))
  %v46 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v45, <8 x double> %v25, <8 x double> splat (double 0x3FC3B13B13B13B14))
  %v47 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v46, <8 x double> %v25, <8 x double> splat (double 0x3FC745D1745D1746))
  %v48 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v47, <8 x double> %v25, <8 x double> splat (double 0x3FCC71C71C71C71C))
  %v49 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v48, <8 x double> %v25, <8 x double> splat (double 0x3FD2492492492492))
  %v50 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v49, <8 x double> %v25, <8 x double> splat (double 0x3FD999999999999A))
  %v51 = fmul <8 x double> %v30, %v25
  %v52 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v30, <8 x double> splat (double 0x3C85555555555555), <8 x double> %v37)
  %v53 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v34, <8 x double> splat (double 0x3FE5555555555555), <8 x double> %v52)
  %v54 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v51, <8 x double> %v50, <8 x double> %v53)
  %v55 = fadd <8 x double> %v17, %v17
  %v56 = fadd <8 x double> %v55, %v35
  %v57 = fsub <8 x double> %v56, %v55
  %v58 = fsub <8 x double> %v35, %v57
  %v59 = fadd <8 x double> %v24, %v24
  %v60 = fadd <8 x double> %v54, %v59
  %v61 = fadd <8 x double> %v58, %v60
  %v62 = fadd <8 x double> %v56, %v61
  %v63 = fsub <8 x double> %v62, %v56
  %v64 = fsub <8 x double> %v61, %v63
  %v65 = fmul <8 x double> %v62, splat (double 0x3FF71547652B82FE)
  %v66 = fneg <8 x double> %v65
  %v67 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v62, <8 x double> splat (double 0x3FF71547652B82FE), <8 x double> %v66)
  %v68 = fadd <8 x double> %v15, %v65
  %v69 = fsub <8 x double> %v68, %v15
  %v70 = fsub <8 x double> %v65, %v69
  %v71 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %v15)
  %v72 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %v65)
  %v73 = fcmp olt <8 x double> %v71, %v72
  %v74 = fsub <8 x double> %v68, %v65
  %v75 = fsub <8 x double> %v15, %v74
  %v76 = select <8 x i1> %v73, <8 x double> %v75, <8 x double> %v70
  %v77 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v64, <8 x double> splat (double 0x3FF71547652B82FE), <8 x double> %v67)
  %v78 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v62, <8 x double> splat (double 0x3C7777D0FFDA0D24), <8 x double> %v77)
  %v79 = fadd <8 x double> %v76, %v78
  %v80 = fmul <8 x double> %x1, %v68
  %v81 = fneg <8 x double> %v80
  %v82 = call <8 x double> @llvm.fma.v8f64(<8 x double> %x1, <8 x double> %v68, <8 x double> %v81)
  %v83 = call <8 x double> @llvm.fma.v8f64(<8 x double> %x1, <8 x double> %v79, <8 x double> %v82)
  %v84 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %v80)
  %v85 = fcmp olt <8 x double> %v84, splat (double 0x4091300000000000)
  %v86 = select <8 x i1> %v85, <8 x double> %v83, <8 x double> splat (double 0x0000000000000000)
  %v87 = fcmp olt <8 x double> %v0, splat (double 0x7FF0000000000000)
  %v88 = select <8 x i1> %v87, <8 x double> %v68, <8 x double> %v0
  %v89 = fcmp olt <8 x double> %v0, splat (double 0x0000000000000000)
  %v90 = select <8 x i1> %v89, <8 x double> splat (double 0x7FF8000000000000), <8 x double> %v88
  %v91 = fcmp oeq <8 x double> %v0, splat (double 0x0000000000000000)
  %v92 = select <8 x i1> %v91, <8 x double> splat (double 0xFFF0000000000000), <8 x double> %v90
  %v93 = fcmp oeq <8 x double> %v0, splat (double 0x0000000000000000)
  %v94 = fcmp oeq <8 x double> %v0, splat (double 0x7FF0000000000000)
  %v95 = or <8 x i1> %v93, %v94
  %v96 = fmul <8 x double> %x1, %v92
  %v97 = select <8 x i1> %v95, <8 x double> %v96, <8 x double> %v80
  %v98 = fcmp oeq <8 x double> %v0, splat (double 0x3FF0000000000000)
  %v99 = select <8 x i1> %v98, <8 x double> splat (double 0x0000000000000000), <8 x double> %v97
  %v100 = fcmp oeq <8 x double> %v0, splat (double 0x3FF0000000000000)
  %v101 = or <8 x i1> %v95, %v100
  %v102 = select <8 x i1> %v101, <8 x double> splat (double 0x0000000000000000), <8 x double> %v86
  %v103 = fcmp ogt <8 x double> %v99, splat (double 0x4091300000000000)
  %v104 = select <8 x i1> %v103, <8 x double> splat (double 0x4091300000000000), <8 x double> %v99
  %v105 = fcmp olt <8 x double> %v104, splat (double 0xC091300000000000)
  %v106 = select <8 x i1> %v105, <8 x double> splat (double 0xC091300000000000), <8 x double> %v104
  %v107 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v106, <8 x double> splat (double 0x3FF0000000000000), <8 x double> splat (double 0x4338000000000000))
  %v108 = fsub <8 x double> %v107, splat (double 0x4338000000000000)
  %v109 = bitcast <8 x double> %v107 to <8 x i64>
  %v110 = sub <8 x i64> %v109, splat (i64 4843621399236968448)
  %v111 = fsub <8 x double> %v106, %v108
  %v112 = fadd <8 x double> %v111, %v102
  %v113 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x3DBC4A29324A1038), <8 x double> %v112, <8 x double> splat (double 0x3DFE9EC1FCB69A7F))
  %v114 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v113, <8 x double> %v112, <8 x double> splat (double 0x3E3E4CF10DEC0F59))
  %v115 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v114, <8 x double> %v112, <8 x double> splat (double 0x3E7B524EBD13A55F))
  %v116 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v115, <8 x double> %v112, <8 x double> splat (double 0x3EB62C02242B879C))
  %v117 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v116, <8 x double> %v112, <8 x double> splat (double 0x3EEFFCBFC6DA6ED1))
  %v118 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v117, <8 x double> %v112, <8 x double> splat (double 0x3F2430912F86B7DB))
  %v119 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v118, <8 x double> %v112, <8 x double> splat (double 0x3F55D87FE78A3F9C))
  %v120 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v119, <8 x double> %v112, <8 x double> splat (double 0x3F83B2AB6FBA4E79))
  %v121 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v120, <8 x double> %v112, <8 x double> splat (double 0x3FAC6B08D704A0C6))
  %v122 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v121, <8 x double> %v112, <8 x double> splat (double 0x3FCEBFBDFF82C58F))
  %v123 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v122, <8 x double> %v112, <8 x double> splat (double 0x3FE62E42FEFA39EF))
  %v124 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v112, <8 x double> %v123, <8 x double> splat (double 0x3FF0000000000000))
  %v125 = ashr <8 x i64> %v110, splat (i64 1)
  %v126 = add <8 x i64> %v125, splat (i64 1023)
  %v127 = shl <8 x i64> %v126, splat (i64 52)
  %v128 = bitcast <8 x i64> %v127 to <8 x double>
  %v129 = fmul <8 x double> %v124, %v128
  %v130 = sub <8 x i64> %v110, %v125
  %v131 = add <8 x i64> %v130, splat (i64 1023)
  %v132 = shl <8 x i64> %v131, splat (i64 52)
  %v133 = bitcast <8 x i64> %v132 to <8 x double>
  %v134 = fmul <8 x double> %v129, %v133
  %v135 = fcmp uno <8 x double> %v0, %v0
  %v136 = fcmp uno <8 x double> %x1, %x1
  %v137 = or <8 x i1> %v135, %v136
  %v138 = select <8 x i1> %v137, <8 x double> splat (double 0x7FF8000000000000), <8 x double> %v134
  %v139 = call <8 x double> @llvm.trunc.v8f64(<8 x double> %x1)
  %v140 = fcmp oeq <8 x double> %v139, %x1
  %v141 = fmul <8 x double> %x1, splat (double 0x3FE0000000000000)
  %v142 = call <8 x double> @llvm.trunc.v8f64(<8 x double> %v141)
  %v143 = fcmp oeq <8 x double> %v142, %v141
  %v144 = xor <8 x i1> %v143, splat (i1 1)
  %v145 = and <8 x i1> %v140, %v144
  %v146 = call <8 x double> @llvm.copysign.v8f64(<8 x double> %v138, <8 x double> %x0)
  %v147 = select <8 x i1> %v145, <8 x double> %v146, <8 x double> %v138
  %v148 = fcmp olt <8 x double> %x0, splat (double 0x0000000000000000)
  %v149 = fcmp ogt <8 x double> %x0, splat (double 0xFFF0000000000000)
  %v150 = and <8 x i1> %v148, %v149
  %v151 = xor <8 x i1> %v140, splat (i1 1)
  %v152 = and <8 x i1> %v150, %v151
  %v153 = select <8 x i1> %v152, <8 x double> splat (double 0x7FF8000000000000), <8 x double> %v147
  %v154 = fcmp oeq <8 x double> %x1, splat (double 0x0000000000000000)
  %v155 = fcmp oeq <8 x double> %x0, splat (double 0x3FF0000000000000)
  %v156 = or <8 x i1> %v154, %v155
  %v157 = select <8 x i1> %v156, <8 x double> splat (double 0x3FF0000000000000), <8 x double> %v153
  ret <8 x double> %v157
}

define internal <8 x double> @aotc.round.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <8 x double> @llvm.roundeven.v8f64(<8 x double> %x0)
  ret <8 x double> %v0
}

define internal <8 x double> @aotc.rsqrt.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <8 x double> @llvm.sqrt.v8f64(<8 x double> %x0)
  %v1 = fdiv <8 x double> splat (double 0x3FF0000000000000), %v0
  ret <8 x double> %v1
}

define internal <8 x double> @aotc.sigmoid.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = fneg <8 x double> %x0
  %v1 = fcmp ogt <8 x double> %v0, splat (double 0x4086380000000000)
  %v2 = select <8 x i1> %v1, <8 x double> splat (double 0x4086380000000000), <8 x double> %v0
  %v3 = fcmp olt <8 x double> %v2, splat (double 0xC096293333333333)
  %v4 = select <8 x i1> %v3, <8 x double> splat (double 0xC096293333333333), <8 x double> %v2
  %v5 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v4, <8 x double> splat (double 0x3FF71547652B82FE), <8 x double> splat (double 0x4338000000000000))
  %v6 = fsub <8 x double> %v5, splat (double 0x4338000000000000)
  %v7 = bitcast <8 x double> %v5 to <8 x i64>
  %v8 = sub <8 x i64> %v7, splat (i64 4843621399236968448)
  %v9 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v6, <8 x double> splat (double 0xBFE62E42FEE00000), <8 x double> %v4)
  %v10 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v6, <8 x double> splat (double 0xBDEA39EF35793C76), <8 x double> %v9)
  %v11 = fmul <8 x double> %v10, %v10
  %v12 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x3DE61BFA83DD7873), <8 x double> %v10, <8 x double> splat (double 0x3E21F7F25B04B0D4))
  %v13 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v12, <8 x double> %v10, <8 x double> splat (double 0x3E5AE642C83E9462))
  %v14 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v13, <8 x double> %v10, <8 x double> splat (double 0x3E927E4D41A5CA90))
  %v15 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v14, <8 x double> %v10, <8 x double> splat (double 0x3EC71DE3A5AA78A7))
  %v16 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v15, <8 x double> %v10, <8 x double> splat (double 0x3EFA01A01A9E935E))
  %v17 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v16, <8 x double> %v10, <8 x double> splat (double 0x3F2A01A01A0196AD))
  %v18 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v17, <8 x double> %v10, <8 x double> splat (double 0x3F56C16C16C15A69))
  %v19 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v18, <8 x double> %v10, <8 x double> splat (double 0x3F81111111111111))
  %v20 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v19, <8 x double> %v10, <8 x double> splat (double 0x3FA5555555555557))
  %v21 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v20, <8 x double> %v10, <8 x double> splat (double 0x3FC5555555555555))
  %v22 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v21, <8 x double> %v10, <8 x double> splat (double 0x3FE0000000000000))
  %v23 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v11, <8 x double> %v22, <8 x double> %v10)
  %v24 = fadd <8 x double> %v23, splat (double 0x3FF0000000000000)
  %v25 = ashr <8 x i64> %v8, splat (i64 1)
  %v26 = add <8 x i64> %v25, splat (i64 1023)
  %v27 = shl <8 x i64> %v26, splat (i64 52)
  %v28 = bitcast <8 x i64> %v27 to <8 x double>
  %v29 = fmul <8 x double> %v24, %v28
  %v30 = sub <8 x i64> %v8, %v25
  %v31 = add <8 x i64> %v30, splat (i64 1023)
  %v32 = shl <8 x i64> %v31, splat (i64 52)
  %v33 = bitcast <8 x i64> %v32 to <8 x double>
  %v34 = fmul <8 x double> %v29, %v33
  %v35 = fadd <8 x double> %v34, splat (double 0x3FF0000000000000)
  %v36 = fdiv <8 x double> splat (double 0x3FF0000000000000), %v35
  ret <8 x double> %v36
}

define internal <8 x double> @aotc.sin.v8f64(<8 x double> %given0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %x0 = freeze <8 x double> %given0
  %v0 = call <8 x double> @llvm.fma.v8f64(<8 x double> %x0, <8 x double> splat (double 0x3FE45F306DC9C883), <8 x double> splat (double 0x4338000000000000))
  %v1 = fsub <8 x double> %v0, splat (double 0x4338000000000000)
  %v2 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v1, <8 x double> splat (double 0xBFF921FB54442D18), <8 x double> %x0)
  %v3 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v1, <8 x double> splat (double 0xBC91A62633145C07), <8 x double> %v2)
  %v4 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v1, <8 x double> splat (double 0x391F1976B7ED8FBC), <8 x double> %v3)
  %v5 = bitcast <8 x double> %v0 to <8 x i64>
  %v6 = sub <8 x i64> %v5, splat (i64 4843621399236968448)
  %v7 = fmul <8 x double> %v4, %v4
  %v8 = fmul <8 x double> %v7, %v4
  %v9 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0xBD6AB17D404DE5B3), <8 x double> %v7, <8 x double> splat (double 0x3DE61217F0B800D5))
  %v10 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v9, <8 x double> %v7, <8 x double> splat (double 0xBE5AE645412C560C))
  %v11 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v10, <8 x double> %v7, <8 x double> splat (double 0x3EC71DE3A546095B))
  %v12 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v11, <8 x double> %v7, <8 x double> splat (double 0xBF2A01A01A019938))
  %v13 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v12, <8 x double> %v7, <8 x double> splat (double 0x3F81111111111110))
  %v14 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v13, <8 x double> %v7, <8 x double> splat (double 0xBFC5555555555555))
  %v15 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v8, <8 x double> %v14, <8 x double> %v4)
  %v16 = fmul <8 x double> %v7, splat (double 0x3FE0000000000000)
  %v17 = fsub <8 x double> splat (double 0x3FF0000000000000), %v16
  %v18 = fsub <8 x double> splat (double 0x3FF0000000000000), %v17
  %v19 = fsub <8 x double> %v18, %v16
  %v20 = fmul <8 x double> %v7, %v7
  %v21 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0xBDA907DA367A37CB), <8 x double> %v7, <8 x double> splat (double 0x3E21EEB68E93B64C))
  %v22 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v21, <8 x double> %v7, <8 x double> splat (double 0xBE927E4FA17DA09E))
  %v23 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v22, <8 x double> %v7, <8 x double> splat (double 0x3EFA01A019F4EB01))
  %v24 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v23, <8 x double> %v7, <8 x double> splat (double 0xBF56C16C16C16967))
  %v25 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v24, <8 x double> %v7, <8 x double> splat (double 0x3FA5555555555555))
  %v26 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v20, <8 x double> %v25, <8 x double> %v19)
  %v27 = fadd <8 x double> %v17, %v26
  %v28 = and <8 x i64> %v6, splat (i64 1)
  %v29 = icmp eq <8 x i64> %v28, splat (i64 1)
  %v30 = select <8 x i1> %v29, <8 x double> %v27, <8 x double> %v15
  %v31 = select <8 x i1> %v29, <8 x double> %v15, <8 x double> %v27
  %v32 = and <8 x i64> %v6, splat (i64 2)
  %v33 = shl <8 x i64> %v32, splat (i64 62)
  %v34 = bitcast <8 x double> %v30 to <8 x i64>
  %v35 = xor <8 x i64> %v34, %v33
  %v36 = bitcast <8 x i64> %v35 to <8 x double>
  %v37 = add <8 x i64> %v6, splat (i64 1)
  %v38 = and <8 x i64> %v37, splat (i64 2)
  %v39 = shl <8 x i64> %v38, splat (i64 62)
  %v40 = bitcast <8 x double> %v31 to <8 x i64>
  %v41 = xor <8 x i64> %v40, %v39
  %v42 = bitcast <8 x i64> %v41 to <8 x double>
  %v43 = fcmp oeq <8 x double> %x0, splat (double 0x0000000000000000)
  %v44 = select <8 x i1> %v43, <8 x double> %x0, <8 x double> %v36
  %v45 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x0)
  %v46 = fcmp ogt <8 x double> %v45, splat (double 0x41D0000000000000)
  %v47 = call i1 @llvm.vector.reduce.or.v8i1(<8 x i1> %v46)
  br i1 %v47, label %rare48, label %after48
rare48:
  %v50 = call <8 x double> @aotc.sin.large.v8f64(<8 x double> %x0)
  %v51 = select <8 x i1> %v46, <8 x double> %v50, <8 x double> %v44
  br label %after48
after48:
  %v54 = phi <8 x double> [ %v44, %entry ], [ %v51, %rare48 ]
  ret <8 x double> %v54
}

define internal double @aotc.sin.large.f64(double %x) noinline cold nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
  %v0 = bitcast double %x to i64
  %v1 = lshr i64 %v0, 52
  %v2 = and i64 %v1, 2047
  %v3 = sub i64 %v2, 1075
  %v4 = and i64 %v0, 4503599627370495
  %v5 = or i64 %v4, 4503599627370496
  %v6 = zext i64 %v5 to i192
  %v7 = sub i64 1026, %v3
  %v8 = zext i64 %v7 to i1216
  %v9 = lshr i1216 718381021399624732299735595385274618619477110114933939970624867101253838698409286420830629356098736488792170213291607745084880478721844605528653174581686922300486202694505885421890960380964262732784826317141842042973213136030346079209958129780529826118029123024124693399903324560936792704036471745513563425349871428881185122831297174569766706936548088547134192446379, %v8
  %v10 = trunc i1216 %v9 to i192
  %v11 = mul i192 %v6, %v10
  %v12 = add i192 %v11, 784637716923335095479473677900958302012794430558004314112
  %v13 = lshr i192 %v12, 190
  %v14 = shl i192 %v13, 190
  %v15 = sub i192 %v11, %v14
  %v16 = lshr i192 %v15, 128
  %v17 = trunc i192 %v16 to i64
  %v18 = sitofp i64 %v17 to double
  %v19 = lshr i192 %v15, 64
  %v20 = trunc i192 %v19 to i64
  %v21 = uitofp i64 %v20 to double
  %v22 = fmul double %v18, 0x3C10000000000000
  %v23 = fmul double %v21, 0x3810000000000000
  %v24 = fadd double %v22, %v23
  %v25 = fmul double %v24, 0x3FF921FB54442D18
  %v26 = trunc i192 %v13 to i64
  %v27 = icmp slt i64 %v0, 0
  %v28 = fneg double %v25
  %v29 = select i1 %v27, double %v28, double %v25
  %v30 = sub i64 0, %v26
  %v31 = select i1 %v27, i64 %v30, i64 %v26
  %v32 = fmul double %v29, %v29
  %v33 = fmul double %v32, %v29
  %v34 = call double @llvm.fma.f64(double 0xBD6AB17D404DE5B3, double %v32, double 0x3DE61217F0B800D5)
  %v35 = call double @llvm.fma.f64(double %v34, double %v32, double 0xBE5AE645412C560C)
  %v36 = call double @llvm.fma.f64(double %v35, double %v32, double 0x3EC71DE3A546095B)
  %v37 = call double @llvm.fma.f64(double %v36, double %v32, double 0xBF2A01A01A019938)
  %v38 = call double @llvm.fma.f64(double %v37, double %v32, double 0x3F81111111111110)
  %v39 = call double @llvm.fma.f64(double %v38, double %v32, double 0xBFC5555555555555)
  %v40 = call double @llvm.fma.f64(double %v33, double %v39, double %v29)
  %v41 = fmul double %v32, 0x3FE0000000000000
  %v42 = fsub double 0x3FF0000000000000, %v41
  %v43 = fsub double 0x3FF0000000000000, %v42
  %v44 = fsub double %v43, %v41
  %v45 = fmul double %v32, %v32
  %v46 = call double @llvm.fma.f64(double 0xBDA907DA367A37CB, double %v32, double 0x3E21EEB68E93B64C)
  %v47 = call double @llvm.fma.f64(double %v46, double %v32, double 0xBE927E4FA17DA09E)
  %v48 = call double @llvm.fma.f64(double %v47, double %v32, double 0x3EFA01A019F4EB01)
  %v49 = call double @llvm.fma.f64(double %v48, double %v32, double 0xBF56C16C16C16967)
  %v50 = call double @llvm.fma.f64(double %v49, double %v32, double 0x3FA5555555555555)
  %v51 = call double @llvm.fma.f64(double %v45, double %v50, double %v44)
  %v52 = fadd double %v42, %v51
  %v53 = and i64 %v31, 1
  %v54 = icmp eq i64 %v53, 1
  %v55 = select i1 %v54, double %v52, double %v40
  %v56 = select i1 %v54, double %v40, double %v52
  %v57 = and i64 %v31, 2
  %v58 = shl i64 %v57, 62
  %v59 = bitcast double %v55 to i64
  %v60 = xor i64 %v59, %v58
  %v61 = bitcast i64 %v60 to double
  %v62 = add i64 %v31, 1
  %v63 = and i64 %v62, 2
  %v64 = shl i64 %v63, 62
  %v65 = bitcast double %v56 to i64
  %v66 = xor i64 %v65, %v64
  %v67 = bitcast i64 %v66 to double
  %v68 = call double @llvm.fabs.f64(double %x)
  %v69 = fcmp olt double %v68, 0x7FF0000000000000
  %v70 = fsub double %x, %x
  %v71 = select i1 %v69, double %v61, double %v70
  ret double %v71
}

define internal <8 x double> @aotc.sin.large.v8f64(<8 x double> %x) noinline cold nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
  %a0 = extractelement <8 x double> %x, i32 0
  %b0 = call double @aotc.sin.large.f64(double %a0)
  %c0 = insertelement <8 x double> poison, double %b0, i32 0
  %a1 = extractelement <8 x double> %x, i32 1
  %b1 = call double @aotc.sin.large.f64(double %a1)
  %c1 = insertelement <8 x double> %c0, double %b1, i32 1
  %a2 = extractelement <8 x double> %x, i32 2
  %b2 = call double @aotc.sin.large.f64(double %a2)
  %c2 = insertelement <8 x double> %c1, double %b2, i32 2
  %a3 = extractelement <8 x double> %x, i32 3
  %b3 = call double @aotc.sin.large.f64(double %a3)
  %c3 = insertelement <8 x double> %c2, double %b3, i32 3
  %a4 = extractelement <8 x double> %x, i32 4
  %b4 = call double @aotc.sin.large.f64(double %a4)
  %c4 = insertelement <8 x double> %c3, double %b4, i32 4
  %a5 = extractelement <8 x double> %x, i32 5
  %b5 = call double @aotc.sin.large.f64(double %a5)
  %c5 = insertelement <8 x double> %c4, double %b5, i32 5
  %a6 = extractelement <8 x double> %x, i32 6
  %b6 = call double @aotc.sin.large.f64(double %a6)
  %c6 = insertelement <8 x double> %c5, double %b6, i32 6
  %a7 = extractelement <8 x double> %x, i32 7
  %b7 = call double @aotc.sin.large.f64(double %a7)
  %c7 = insertelement <8 x double> %c6, double %b7, i32 7
  ret <8 x double> %c7
}

define internal <8 x double> @aotc.sinh.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x0)
  %v1 = fcmp ogt <8 x double> %v0, splat (double 0x4086380000000000)
  %v2 = select <8 x i1> %v1, <8 x double> splat (double 0x4086380000000000), <8 x double> %v0
  %v3 = fcmp olt <8 x double> %v2, splat (double 0xC096293333333333)
  %v4 = select <8 x i1> %v3, <8 x double> splat (double 0xC096293333333333), <8 x double> %v2
  %v5 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v4, <8 x double> splat (double 0x3FF71547652B82FE), <8 x double> splat (double 0x4338000000000000))
  %v6 = fsub <8 x double> %v5, splat (double 0x4338000000000000)
  %v7 = bitcast <8 x double> %v5 to <8 x i64>
  %v8 = sub <8 x i64> %v7, splat (i64 4843621399236968448)
  %v9 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v6, <8 x double> splat (double 0xBFE62E42FEE00000), <8 x double> %v4)
  %v10 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v6, <8 x double> splat (double 0xBDEA39EF35793C76), <8 x double> %v9)
  %v11 = fmul <8 x double> %v10, %v10
  %v12 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x3DE61BFA83DD7873), <8 x double> %v10, <8 x double> splat (double 0x3E21F7F25B04B0D4))
  %v13 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v12, <8 x double> %v10, <8 x double> splat (double 0x3E5AE642C83E9462))
  %v14 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v13, <8 x double> %v10, <8 x double> splat (double 0x3E927E4D41A5CA90))
  %v15 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v14, <8 x double> %v10, <8 x double> splat (double 0x3EC71DE3A5AA78A7))
  %v16 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v15, <8 x double> %v10, <8 x double> splat (double 0x3EFA01A01A9E935E))
  %v17 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v16, <8 x double> %v10, <8 x double> splat (double 0x3F2A01A01A0196AD))
  %v18 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v17, <8 x double> %v10, <8 x double> splat (double 0x3F56C16C16C15A69))
  %v19 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v18, <8 x double> %v10, <8 x double> splat (double 0x3F81111111111111))
  %v20 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v19, <8 x double> %v10, <8 x double> splat (double 0x3FA5555555555557))
  %v21 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v20, <8 x double> %v10, <8 x double> splat (double 0x3FC5555555555555))
  %v22 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v21, <8 x double> %v10, <8 x double> splat (double 0x3FE0000000000000))
  %v23 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v11, <8 x double> %v22, <8 x double> %v10)
  %v24 = fadd <8 x double> %v23, splat (double 0x3FF0000000000000)
  %v25 = sub <8 x i64> %v8, splat (i64 1)
  %v26 = ashr <8 x i64> %v25, splat (i64 1)
  %v27 = add <8 x i64> %v26, splat (i64 1023)
  %v28 = shl <8 x i64> %v27, splat (i64 52)
  %v29 = bitcast <8 x i64> %v28 to <8 x double>
  %v30 = fmul <8 x double> %v24, %v29
  %v31 = sub <8 x i64> %v25, %v26
  %v32 = add <8 x i64> %v31, splat (i64 1023)
  %v33 = shl <8 x i64> %v32, splat (i64 52)
  %v34 = bitcast <8 x i64> %v33 to <8 x double>
  %v35 = fmul <8 x double> %v30, %v34
  %v36 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x0)
  %v37 = fcmp ogt <8 x double> %v36, splat (double 0x4086300000000000)
  %v38 = select <8 x i1> %v37, <8 x double> splat (double 0x4086300000000000), <8 x double> %v36
  %v39 = fcmp olt <8 x double> %v38, splat (double 0xC044000000000000)
  %v40 = select <8 x i1> %v39, <8 x double> splat (double 0xC044000000000000), <8 x double> %v38
  %v41 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v40, <8 x double> splat (double 0x3FF71547652B82FE), <8 x double> splat (double 0x4338000000000000))
  %v42 = fsub <8 x double> %v41, splat (double 0x4338000000000000)
  %v43 = bitcast <8 x double> %v41 to <8 x i64>
  %v44 = sub <8 x i64> %v43, splat (i64 4843621399236968448)
  %v45 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v42, <8 x double> splat (double 0xBFE62E42FEE00000), <8 x double> %v40)
  %v46 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v42, <8 x double> splat (double 0xBDEA39EF35793C76), <8 x double> %v45)
  %v47 = fmul <8 x double> %v46, %v46
  %v48 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x3DE61BFA83DD7873), <8 x double> %v46, <8 x double> splat (double 0x3E21F7F25B04B0D4))
  %v49 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v48, <8 x double> %v46, <8 x double> splat (double 0x3E5AE642C83E9462))
  %v50 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v49, <8 x double> %v46, <8 x double> splat (double 0x3E927E4D41A5CA90))
  %v51 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v50, <8 x double> %v46, <8 x double> splat (double 0x3EC71DE3A5AA78A7))
  %v52 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v51, <8 x double> %v46, <8 x double> splat (double 0x3EFA01A01A9E935E))
  %v53 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v52, <8 x double> %v46, <8 x double> splat (double 0x3F2A01A01A0196AD))
  %v54 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v53, <8 x double> %v46, <8 x double> splat (double 0x3F56C16C16C15A69))
  %v55 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v54, <8 x double> %v46, <8 x double> splat (double 0x3F81111111111111))
  %v56 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v55, <8 x double> %v46, <8 x double> splat (double 0x3FA5555555555557))
  %v57 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v56, <8 x double> %v46, <8 x double> splat (double 0x3FC5555555555555))
  %v58 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v57, <8 x double> %v46, <8 x double> splat (double 0x3FE0000000000000))
  %v59 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v47, <8 x double> %v58, <8 x double> %v46)
  %v60 = sub <8 x i64> %v44, splat (i64 1)
  %v61 = add <8 x i64> %v60, splat (i64 1023)
  %v62 = shl <8 x i64> %v61, splat (i64 52)
  %v63 = bitcast <8 x i64> %v62 to <8 x double>
  %v64 = fsub <8 x double> %v63, splat (double 0x3FE0000000000000)
  %v65 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v63, <8 x double> %v59, <8 x double> %v64)
  %v66 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %v36)
  %v67 = fcmp olt <8 x double> %v66, splat (double 0x03B8F2B061AEA072)
  %v68 = fadd <8 x double> %v65, %v65
  %v69 = select <8 x i1> %v67, <8 x double> %v36, <8 x double> %v68
  %v70 = fadd <8 x double> %v69, splat (double 0x3FF0000000000000)
  %v71 = fdiv <8 x double> %v69, %v70
  %v72 = fadd <8 x double> %v69, %v71
  %v73 = fmul <8 x double> %v72, splat (double 0x3FE0000000000000)
  %v74 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x0)
  %v75 = fcmp olt <8 x double> %v74, splat (double 0x3FF0000000000000)
  %v76 = fdiv <8 x double> splat (double 0x3FD0000000000000), %v35
  %v77 = fsub <8 x double> %v35, %v76
  %v78 = select <8 x i1> %v75, <8 x double> %v73, <8 x double> %v77
  %v79 = call <8 x double> @llvm.copysign.v8f64(<8 x double> %v78, <8 x double> %x0)
  ret <8 x double> %v79
}

define internal <8 x double> @aotc.sqrt.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <8 x double> @llvm.sqrt.v8f64(<8 x double> %x0)
  ret <8 x double> %v0
}

define internal <8 x double> @aotc.tan.v8f64(<8 x double> %given0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %x0 = freeze <8 x double> %given0
  %v0 = call <8 x double> @llvm.fma.v8f64(<8 x double> %x0, <8 x double> splat (double 0x3FE45F306DC9C883), <8 x double> splat (double 0x4338000000000000))
  %v1 = fsub <8 x double> %v0, splat (double 0x4338000000000000)
  %v2 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v1, <8 x double> splat (double 0xBFF921FB54442D18), <8 x double> %x0)
  %v3 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v1, <8 x double> splat (double 0xBC91A62633145C07), <8 x double> %v2)
  %v4 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v1, <8 x double> splat (double 0x391F1976B7ED8FBC), <8 x double> %v3)
  %v5 = bitcast <8 x double> %v0 to <8 x i64>
  %v6 = sub <8 x i64> %v5, splat (i64 4843621399236968448)
  %v7 = fmul <8 x double> %v4, %v4
  %v8 = fmul <8 x double> %v7, %v4
  %v9 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0xBD6AB17D404DE5B3), <8 x double> %v7, <8 x double> splat (double 0x3DE61217F0B800D5))
  %v10 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v9, <8 x double> %v7, <8 x double> splat (double 0xBE5AE645412C560C))
  %v11 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v10, <8 x double> %v7, <8 x double> splat (double 0x3EC71DE3A546095B))
  %v12 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v11, <8 x double> %v7, <8 x double> splat (double 0xBF2A01A01A019938))
  %v13 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v12, <8 x double> %v7, <8 x double> splat (double 0x3F81111111111110))
  %v14 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v13, <8 x double> %v7, <8 x double> splat (double 0xBFC5555555555555))
  %v15 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v8, <8 x double> %v14, <8 x double> %v4)
  %v16 = fmul <8 x double> %v7, splat (double 0x3FE0000000000000)
  %v17 = fsub <8 x double> splat (double 0x3FF0000000000000), %v16
  %v18 = fsub <8 x double> splat (double 0x3FF0000000000000), %v17
  %v19 = fsub <8 x double> %v18, %v16
  %v20 = fmul <8 x double> %v7, %v7
  %v21 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0xBDA907DA367A37CB), <8 x double> %v7, <8 x double> splat (double 0x3E21EEB68E93B64C))
  %v22 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v21, <8 x double> %v7, <8 x double> splat (double 0xBE927E4FA17DA09E))
  %v23 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v22, <8 x double> %v7, <8 x double> splat (double 0x3EFA01A019F4EB01))
  %v24 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v23, <8 x double> %v7, <8 x double> splat (double 0xBF56C16C16C16967))
  %v25 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v24, <8 x double> %v7, <8 x double> splat (double 0x3FA5555555555555))
  %v26 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v20, <8 x double> %v25, <8 x double> %v19)
  %v27 = fadd <8 x double> %v17, %v26
  %v28 = and <8 x i64> %v6, splat (i64 1)
  %v29 = icmp eq <8 x i64> %v28, splat (i64 1)
  %v30 = select <8 x i1> %v29, <8 x double> %v27, <8 x double> %v15
  %v31 = select <8 x i1> %v29, <8 x double> %v15, <8 x double> %v27
  %v32 = and <8 x i64> %v6, splat (i64 2)
  %v33 = shl <8 x i64> %v32, splat (i64 62)
  %v34 = bitcast <8 x double> %v30 to <8 x i64>
  %v35 = xor <8 x i64> %v34, %v33
  %v36 = bitcast <8 x i64> %v35 to <8 x double>
  %v37 = add <8 x i64> %v6, splat (i64 1)
  %v38 = and <8 x i64> %v37, splat (i64 2)
  %v39 = shl <8 x i64> %v38, splat (i64 62)
  %v40 = bitcast <8 x double> %v31 to <8 x i64>
  %v41 = xor <8 x i64> %v40, %v39
  %v42 = bitcast <8 x i64> %v41 to <8 x double>
  %v43 = fdiv <8 x double> %v36, %v42
  %v44 = fcmp oeq <8 x double> %x0, splat (double 0x0000000000000000)
  %v45 = select <8 x i1> %v44, <8 x double> %x0, <8 x double> %v43
  %v46 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x0)
  %v47 = fcmp ogt <8 x double> %v46, splat (double 0x41D0000000000000)
  %v48 = call i1 @llvm.vector.reduce.or.v8i1(<8 x i1> %v47)
  br i1 %v48, label %rare49, label %after49
rare49:
  %v51 = call <8 x double> @aotc.tan.large.v8f64(<8 x double> %x0)
  %v52 = select <8 x i1> %v47, <8 x double> %v51, <8 x double> %v45
  br label %after49
after49:
  %v55 = phi <8 x double> [ %v45, %entry ], [ %v52, %rare49 ]
  ret <8 x double> %v55
}

define internal double @aotc.tan.large.f64(double %x) noinline cold nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
  %v0 = bitcast double %x to i64
  %v1 = lshr i64 %v0, 52
  %v2 = and i64 %v1, 2047
  %v3 = sub i64 %v2, 1075
  %v4 = and i64 %v0, 4503599627370495
  %v5 = or i64 %v4, 4503599627370496
  %v6 = zext i64 %v5 to i192
  %v7 = sub i64 1026, %v3
  %v8 = zext i64 %v7 to i1216
  %v9 = lshr i1216 718381021399624732299735595385274618619477110114933939970624867101253838698409286420830629356098736488792170213291607745084880478721844605528653174581686922300486202694505885421890960380964262732784826317141842042973213136030346079209958129780529826118029123024124693399903324560936792704036471745513563425349871428881185122831297174569766706936548088547134192446379, %v8
  %v10 = trunc i1216 %v9 to i192
  %v11 = mul i192 %v6, %v10
  %v12 = add i192 %v11, 784637716923335095479473677900958302012794430558004314112
  %v13 = lshr i192 %v12, 190
  %v14 = shl i192 %v13, 190
  %v15 = sub i192 %v11, %v14
  %v16 = lshr i192 %v15, 128
  %v17 = trunc i192 %v16 to i64
  %v18 = sitofp i64 %v17 to double
  %v19 = lshr i192 %v15, 64
  %v20 = trunc i192 %v19 to i64
  %v21 = uitofp i64 %v20 to double
  %v22 = fmul double %v18, 0x3C10000000000000
  %v23 = fmul double %v21, 0x3810000000000000
  %v24 = fadd double %v22, %v23
  %v25 = fmul double %v24, 0x3FF921FB54442D18
  %v26 = trunc i192 %v13 to i64
  %v27 = icmp slt i64 %v0, 0
  %v28 = fneg double %v25
  %v29 = select i1 %v27, double %v28, double %v25
  %v30 = sub i64 0, %v26
  %v31 = select i1 %v27, i64 %v30, i64 %v26
  %v32 = fmul double %v29, %v29
  %v33 = fmul double %v32, %v29
  %v34 = call double @llvm.fma.f64(double 0xBD6AB17D404DE5B3, double %v32, double 0x3DE61217F0B800D5)
  %v35 = call double @llvm.fma.f64(double %v34, double %v32, double 0xBE5AE645412C560C)
  %v36 = call double @llvm.fma.f64(double %v35, double %v32, double 0x3EC71DE3A546095B)
  %v37 = call double @llvm.fma.f64(double %v36, double %v32, double 0xBF2A01A01A019938)
  %v38 = call double @llvm.fma.f64(double %v37, double %v32, double 0x3F81111111111110)
  %v39 = call double @llvm.fma.f64(double %v38, double %v32, double 0xBFC5555555555555)
  %v40 = call double @llvm.fma.f64(double %v33, double %v39, double %v29)
  %v41 = fmul double %v32, 0x3FE0000000000000
  %v42 = fsub double 0x3FF0000000000000, %v41
  %v43 = fsub double 0x3FF0000000000000, %v42
  %v44 = fsub double %v43, %v41
  %v45 = fmul double %v32, %v32
  %v46 = call double @llvm.fma.f64(double 0xBDA907DA367A37CB, double %v32, double 0x3E21EEB68E93B64C)
  %v47 = call double @llvm.fma.f64(double %v46, double %v32, double 0xBE927E4FA17DA09E)
  %v48 = call double @llvm.fma.f64(double %v47, double %v32, double 0x3EFA01A019F4EB01)
  %v49 = call double @llvm.fma.f64(double %v48, double %v32, double 0xBF56C16C16C16967)
  %v50 = call double @llvm.fma.f64(double %v49, double %v32, double 0x3FA5555555555555)
  %v51 = call double @llvm.fma.f64(double %v45, double %v50, double %v44)
  %v52 = fadd double %v42, %v51
  %v53 = and i64 %v31, 1
  %v54 = icmp eq i64 %v53, 1
  %v55 = select i1 %v54, double %v52, double %v40
  %v56 = select i1 %v54, double %v40, double %v52
  %v57 = and i64 %v31, 2
  %v58 = shl i64 %v57, 62
  %v59 = bitcast double %v55 to i64
  %v60 = xor i64 %v59, %v58
  %v61 = bitcast i64 %v60 to double
  %v62 = add i64 %v31, 1
  %v63 = and i64 %v62, 2
  %v64 = shl i64 %v63, 62
  %v65 = bitcast double %v56 to i64
  %v66 = xor i64 %v65, %v64
  %v67 = bitcast i64 %v66 to double
  %v68 = fdiv double %v61, %v67
  %v69 = call double @llvm.fabs.f64(double %x)
  %v70 = fcmp olt double %v69, 0x7FF0000000000000
  %v71 = fsub double %x, %x
  %v72 = select i1 %v70, double %v68, double %v71
  ret double %v72
}

define internal <8 x double> @aotc.tan.large.v8f64(<8 x double> %x) noinline cold nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
  %a0 = extractelement <8 x double> %x, i32 0
  %b0 = call double @aotc.tan.large.f64(double %a0)
  %c0 = insertelement <8 x double> poison, double %b0, i32 0
  %a1 = extractelement <8 x double> %x, i32 1
  %b1 = call double @aotc.tan.large.f64(double %a1)
  %c1 = insertelement <8 x double> %c0, double %b1, i32 1
  %a2 = extractelement <8 x double> %x, i32 2
  %b2 = call double @aotc.tan.large.f64(double %a2)
  %c2 = insertelement <8 x double> %c1, double %b2, i32 2
  %a3 = extractelement <8 x double> %x, i32 3
  %b3 = call double @aotc.tan.large.f64(double %a3)
  %c3 = insertelement <8 x double> %c2, double %b3, i32 3
  %a4 = extractelement <8 x double> %x, i32 4
  %b4 = call double @aotc.tan.large.f64(double %a4)
  %c4 = insertelement <8 x double> %c3, double %b4, i32 4
  %a5 = extractelement <8 x double> %x, i32 5
  %b5 = call double @aotc.tan.large.f64(double %a5)
  %c5 = insertelement <8 x double> %c4, double %b5, i32 5
  %a6 = extractelement <8 x double> %x, i32 6
  %b6 = call double @aotc.tan.large.f64(double %a6)
  %c6 = insertelement <8 x double> %c5, double %b6, i32 6
  %a7 = extractelement <8 x double> %x, i32 7
  %b7 = call double @aotc.tan.large.f64(double %a7)
  %c7 = insertelement <8 x double> %c6, double %b7, i32 7
  ret <8 x double> %c7
}

define internal <8 x double> @aotc.tanh.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %x0)
  %v1 = fcmp ogt <8 x double> %v0, splat (double 0x4034000000000000)
  %v2 = select <8 x i1> %v1, <8 x double> splat (double 0x4034000000000000), <8 x double> %v0
  %v3 = fadd <8 x double> %v2, %v2
  %v4 = fcmp ogt <8 x double> %v3, splat (double 0x4086300000000000)
  %v5 = select <8 x i1> %v4, <8 x double> splat (double 0x4086300000000000), <8 x double> %v3
  %v6 = fcmp olt <8 x double> %v5, splat (double 0xC044000000000000)
  %v7 = select <8 x i1> %v6, <8 x double> splat (double 0xC044000000000000), <8 x double> %v5
  %v8 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v7, <8 x double> splat (double 0x3FF71547652B82FE), <8 x double> splat (double 0x4338000000000000))
  %v9 = fsub <8 x double> %v8, splat (double 0x4338000000000000)
  %v10 = bitcast <8 x double> %v8 to <8 x i64>
  %v11 = sub <8 x i64> %v10, splat (i64 4843621399236968448)
  %v12 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v9, <8 x double> splat (double 0xBFE62E42FEE00000), <8 x double> %v7)
  %v13 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v9, <8 x double> splat (double 0xBDEA39EF35793C76), <8 x double> %v12)
  %v14 = fmul <8 x double> %v13, %v13
  %v15 = call <8 x double> @llvm.fma.v8f64(<8 x double> splat (double 0x3DE61BFA83DD7873), <8 x double> %v13, <8 x double> splat (double 0x3E21F7F25B04B0D4))
  %v16 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v15, <8 x double> %v13, <8 x double> splat (double 0x3E5AE642C83E9462))
  %v17 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v16, <8 x double> %v13, <8 x double> splat (double 0x3E927E4D41A5CA90))
  %v18 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v17, <8 x double> %v13, <8 x double> splat (double 0x3EC71DE3A5AA78A7))
  %v19 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v18, <8 x double> %v13, <8 x double> splat (double 0x3EFA01A01A9E935E))
  %v20 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v19, <8 x double> %v13, <8 x double> splat (double 0x3F2A01A01A0196AD))
  %v21 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v20, <8 x double> %v13, <8 x double> splat (double 0x3F56C16C16C15A69))
  %v22 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v21, <8 x double> %v13, <8 x double> splat (double 0x3F81111111111111))
  %v23 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v22, <8 x double> %v13, <8 x double> splat (double 0x3FA5555555555557))
  %v24 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v23, <8 x double> %v13, <8 x double> splat (double 0x3FC5555555555555))
  %v25 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v24, <8 x double> %v13, <8 x double> splat (double 0x3FE0000000000000))
  %v26 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v14, <8 x double> %v25, <8 x double> %v13)
  %v27 = sub <8 x i64> %v11, splat (i64 1)
  %v28 = add <8 x i64> %v27, splat (i64 1023)
  %v29 = shl <8 x i64> %v28, splat (i64 52)
  %v30 = bitcast <8 x i64> %v29 to <8 x double>
  %v31 = fsub <8 x double> %v30, splat (double 0x3FE0000000000000)
  %v32 = call <8 x double> @llvm.fma.v8f64(<8 x double> %v30, <8 x double> %v26, <8 x double> %v31)
  %v33 = call <8 x double> @llvm.fabs.v8f64(<8 x double> %v3)
  %v34 = fcmp olt <8 x double> %v33, splat (double 0x03B8F2B061AEA072)
  %v35 = fadd <8 x double> %v32, %v32
  %v36 = select <8 x i1> %v34, <8 x double> %v3, <8 x double> %v35
  %v37 = fadd <8 x double> %v36, splat (double 0x4000000000000000)
  %v38 = fdiv <8 x double> %v36, %v37
  %v39 = call <8 x double> @llvm.copysign.v8f64(<8 x double> %v38, <8 x double> %x0)
  ret <8 x double> %v39
}

define internal <8 x double> @aotc.trunc.v8f64(<8 x double> %x0) alwaysinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" {
entry:
  %v0 = call <8 x double> @llvm.trunc.v8f64(<8 x double> %x0)
  ret <8 x double> %v0
}
