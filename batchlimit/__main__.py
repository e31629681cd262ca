"""`python -m batchlimit` is the command `batchlimit`."""

from batchlimit.cli import main

if __name__ == "__main__":
    main()
