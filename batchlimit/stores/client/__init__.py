"""Connections to Redis and Valkey, and what travels over them."""
