"""The twins of lua/ in Python: the token bucket, the slots of a shared limit, and the messages to both."""
