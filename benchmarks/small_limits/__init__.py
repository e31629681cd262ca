"""Small limits over several limiter instances, beside one plain bucket that every call asks."""
