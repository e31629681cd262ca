"""Knee, the default law, and its parts.

`span` gathers calls until they tell something. `baseline` says how long they took compared with calls that do not
queue: its RatioBand whether that is too long, its Trust whether to believe what a drain told. `drain` says when all
limiters let few calls in, to see how long calls take without a queue. `knee` decides.
"""
