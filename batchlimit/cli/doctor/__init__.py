"""`batchlimit doctor`: is the store fit for limiters, and what to do if not.

`findings` judges facts (pure), `examination` asks the store for them.
"""
