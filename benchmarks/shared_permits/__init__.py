"""Permits that processes share: a crew of processes that hold them, faults meanwhile, and a replay of who held when."""
