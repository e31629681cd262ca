"""The gate behind a lock."""
