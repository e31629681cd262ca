"""The global token bucket in Python: what instances and the bucket say to each other, and the arithmetic of lua/."""
