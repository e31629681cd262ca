"""The adaptive concurrency limiter: how many calls may be under way at once."""
