"""Knee, the default law, and its parts.

`span` gathers calls until they tell something; its Drains say when all limiters let few calls in. `baseline` compares
calls with those that do not queue: its RatioBand says whether they take too long, its Trust whether to believe a drain.
"""
