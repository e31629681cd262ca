"""Helpers that every part uses: clocks, locks, wake-ups, deadlines, and what is shown of a value."""
