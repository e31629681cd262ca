"""`batchlimit simulate`: an access log replayed through proposed rules, in virtual time.

`log` reads log lines, in order of time, `fleet` has limiters without threads on a store in memory, `replay` sends each
line to one of them, `result` makes rows of what happened, `plot` draws it, `command` runs it all.
"""
