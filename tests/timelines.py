"""Timelines that more than one API obeys."""

FOLLOWED_BY_REFUSALS = [  # at, cost, allowed, retry after
    (0.00, 10, True, 0.0),
    (0.00, 1, False, 0.1),
    (0.05, 1, False, 0.05),
    (0.09, 1, False, 0.01),
    (0.20, 2, True, 0.0),
    (0.20, 3, False, 0.3),
    (0.25, 1, False, 0.05),
    (0.41, 3, False, 0.09),
    (0.41, 1, True, 0.0),
    (9.00, 10, True, 0.0),
    (9.00, 1, False, 0.1),
]
"""A quota of 10/s, whose store answers at once."""
