"""Runs and audits a fleet: processes on this machine that share one quota, for the demo, benchmarks and tests."""
