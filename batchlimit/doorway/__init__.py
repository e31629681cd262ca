"""The concurrency limiter as both fronts share it: a gate and a law behind one lock, and the permits to pass."""
