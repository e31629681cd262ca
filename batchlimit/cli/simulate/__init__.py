"""`batchlimit simulate`: an access log replayed through proposed rules, in virtual time.

`log` reads log lines, in order of time. `fleet` has limiters without threads on a store in memory. `replay` sends each
line to one of them, or to one bucket for each key. `result` makes rows and a picture of what happened.
"""
