"""The command line: `batchlimit set`, `hold`, `open`, `unset`, `refill`, `clear`, `rules`, `log`, `get`."""

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command that the arguments name. Exit status 2 if the packages of the 'cli' extra are missing."""
    try:
        from batchlimit.cli.app import app

        try:
            app(prog_name="batchlimit")
        finally:
            sys.stdout.flush()  # else Python does, at its end, and says what failed in a traceback
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:  # such as a full disk: what was changed stays so
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # where the rest goes that could not be written
        print(f"batchlimit: {error}", file=sys.stderr)
        sys.exit(2)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("rich", "typer"):
            raise
        print(f"batchlimit: the command line needs {missing!r}: pip install 'batchlimit[cli]'", file=sys.stderr)
        sys.exit(2)
