"""`batchlimit top`: which keys use and refuse the most, live.

`sampler` reads buckets within a budget, `board` makes rows of what it read (pure), `screen` draws and reads what
somebody presses, `command` runs it all, and reads the metrics of concurrency limiters.
"""
