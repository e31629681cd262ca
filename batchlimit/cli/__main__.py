"""`python -m batchlimit.cli` is `batchlimit`."""

from batchlimit.cli import main

# The processes of a fleet import this module under another name; they must not start fleets of their own.
if __name__ == "__main__":
    main()
