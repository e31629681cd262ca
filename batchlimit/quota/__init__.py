"""What a key may spend: quotas, their grammar, which key has which, and the names of keys."""
