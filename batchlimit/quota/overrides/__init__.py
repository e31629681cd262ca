"""Quotas that operators set in the store while processes run: what they say, which of them counts, and who knows it."""
