"""The threaded API: drives the core with locks, events and one background thread a limiter."""
