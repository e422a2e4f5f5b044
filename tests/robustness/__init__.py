"""Counts that the guarantees about bundles and the cache are held to: `scripts/robustness`."""
