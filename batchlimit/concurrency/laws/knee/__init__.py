"""Knee, the default law, and its parts.

`span` gathers calls until they tell something. `baseline` says how long they took compared with calls that do not
queue, `band` whether that is too long, `slope` whether more calls at once bring more answers, and `probe` when to try
another limit. `knee` decides.
"""
