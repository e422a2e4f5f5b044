"""The figures of `docs/benchmarks.md`: aotc beside its peers, measured in one run."""
