"""Options that commands have in common."""

from enum import StrEnum
from typing import Annotated

import typer


class Output(StrEnum):
    """Forms of output."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


_ASKED = typer.Option(
    "--url", envvar="BATCHLIMIT_URL", help="The store, as of the limiters.", show_envvar=True, show_default=False
)
Url = Annotated[str, _ASKED]
Prefix = Annotated[str, typer.Option(envvar="BATCHLIMIT_PREFIX", help="As of the limiters.", show_envvar=True)]
Form = Annotated[Output, typer.Option("--output", "-o", help="The form of the output.")]
Why = Annotated[str, typer.Option(help="The reason, for the log and for others.")]
Who = Annotated[str | None, typer.Option(help="Who the log says it was.", show_default="user@machine")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DEFAULT_PREFIX = "batchlimit"
