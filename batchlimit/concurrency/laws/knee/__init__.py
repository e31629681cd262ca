"""Knee, the default law, and its parts.

`span` gathers calls until they tell something. `baseline` says how long they took compared with calls that do not
queue, and `band` whether that is too long. `drain` says when all limiters let few calls in, to see how long calls take
without a queue, and `trust` whether to believe it. `knee` decides.
"""
