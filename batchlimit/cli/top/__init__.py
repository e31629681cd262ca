"""`batchlimit top`: which keys use and refuse the most, live.

`sampler` reads buckets within a budget, `board` makes rows of what it read (pure), `view` reads what somebody presses
and says how rows are sorted and filtered, `screen` draws them, `command` runs it all.
"""
