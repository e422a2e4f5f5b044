"""The package `aotc`: links to the folders `aot`, `cache`, `kernels` and `runtime` beside it."""
