"""Runs, watches and audits a fleet: processes on this machine that share one quota, for demos, benchmarks and tests."""
