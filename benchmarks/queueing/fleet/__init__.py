"""Many limiters before one server of known capacity, in virtual time: the same seed, the same run."""
