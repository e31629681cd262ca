"""`python -m batchlimit.cli` is `batchlimit`."""

from batchlimit.cli import main

if __name__ == "__main__":
    main()
