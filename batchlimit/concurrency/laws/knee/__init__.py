"""Knee, the default law, and its parts.

`span` gathers calls until they tell something; its Drains say when all limiters let few calls in, to see how long calls
take without a queue. `baseline` says how long they took compared with calls that do not queue: its RatioBand whether
that is too long, its Trust whether to believe what a drain told. `knee` decides.
"""
