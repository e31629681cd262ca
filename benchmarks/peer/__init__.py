"""batchlimit beside other limiters of Python: how each is called, how it is driven, and what comes of it.

contender  what is compared: a name, a package, and how to open it
threaded   every contender for threads          awaited    every contender for tasks
load       threads that call                    crowd      tasks that call
latency    what a call takes, from when it is due
crew       processes that carry out a job each  meter      what the server counts
book       what was measured, round by round    parts      what is measured, and how often
targets    what ours is to reach                pages      the tables     drawings   the plots
"""
