"""``python -m benchmarks``: the same function on tenferro and on each installed peer, in turn, in one process."""
