"""One key while the store is away: what its callers get instead, and what becomes of its waiters."""
