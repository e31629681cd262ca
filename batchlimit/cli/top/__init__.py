"""`batchlimit top`: which keys use and refuse the most, live.

`sampler` reads buckets within a budget, `board` makes rows of what it read (pure), `view` says how they are sorted and
filtered (pure), `screen` draws them, `keyboard` reads keys, `command` runs it all.
"""
