"""The contract of every store, in process or on a server: what it lends, to whom, and what it takes back.

The quotas refill so slowly that the time that the rules take does not show in any whole token.
"""
