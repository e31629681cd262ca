"""The commands of `batchlimit`."""

import typer

from batchlimit.fleet.demo import demo

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(demo)


@app.callback()
def batchlimit() -> None:
    """A rate limiter for many processes: each leases tokens from one shared bucket in batches."""
