"""The keys of one limiter in this process: in use, dormant or unknown."""
