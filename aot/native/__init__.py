"""Native back ends in builds: ops tied to functions of libraries, their kernels and measurements.

What the graph and the plan say of a native function is the compiler's own (`ir/native.py`,
`runtime/bundle/native_plan.py`); what opens and calls libraries stands here, beside the compiler,
which asks for it by `aot/extensions.py`.
"""
