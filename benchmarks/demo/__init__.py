"""Shows batchlimit at work: `scripts/demo`, or `python -m benchmarks.demo`."""
