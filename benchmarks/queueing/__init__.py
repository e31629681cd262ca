"""A server of known capacity behind a concurrency limit, in virtual time: the same seed, the same run."""
