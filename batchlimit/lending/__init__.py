"""The slots of a limit that a fleet shares: the messages, and the twin of `lua/lend.lua` in Python."""
