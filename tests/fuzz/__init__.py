"""A differential fuzzer of the compiler: random programs of torch code, judged by eager torch."""
