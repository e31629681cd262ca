"""batchlimit beside other limiters of Python: how each is called, how it is driven, and what comes of it.

contender                what is compared: a name, a package, how it is opened, and what one call is
threaded, awaited        the contenders for threads, and for tasks; least, least_awaited: ours, and the least there is
tally                    what callers did, for the audit
load, crowd, latency     threads that call, tasks that call, and threads whose calls are timed
crew, pinned, meter      client processes; on one processor; what the server counts meanwhile
parts, runs, bench       all that is measured; one run of every kind; in what order they are run
book, record             every round, and what they come to; the same as JSON
targets                  what ours is to reach
tables, brief, page      what was measured, as Markdown; drawings: as plots
"""
