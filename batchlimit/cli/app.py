"""The commands of `batchlimit`."""

from typing import Annotated

import typer

from batchlimit import __version__
from batchlimit.cli import apply, bucket, rules
from batchlimit.cli.doctor.command import doctor
from batchlimit.cli.exporter import exporter
from batchlimit.cli.migrate import migrate
from batchlimit.cli.simulate.command import simulate
from batchlimit.cli.top.command import top

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
app.command("set")(rules.set_)
app.command()(rules.hold)
app.command("open")(rules.open_)
app.command()(rules.unset)
app.command("get")(bucket.get)
app.command()(top)
app.command()(bucket.refill)
app.command()(bucket.clear)
app.command()(bucket.resume)
app.command()(doctor)
app.command()(exporter)
app.command()(simulate)
_rules = typer.Typer(invoke_without_command=True)
_rules.callback()(rules.rules)
_rules.command()(apply.apply)
app.add_typer(_rules, name="rules")
app.command()(rules.log)
app.command()(apply.check)
app.command()(apply.diff)
app.command()(migrate)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"batchlimit {__version__}")
        raise typer.Exit


@app.callback()
def batchlimit(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A rate limiter for many processes: each leases tokens from one shared bucket in batches."""
