"""Where the commands look: the options that all of them have, and how they end when something is wrong."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from batchlimit.admin import Admin
from batchlimit.cli.output import Output, say
from batchlimit.errors import RulesChanged, StoreUnavailable
from batchlimit.stores.redis import RedisStore

NOTHING_DONE, WRONG, AWAY = 1, 2, 3
"""Exit statuses: nothing was changed, the command cannot work, the store does not answer."""

Url = Annotated[
    str,
    typer.Option(
        "--url", envvar="BATCHLIMIT_URL", help="The store, as of the limiters.", show_envvar=True, show_default=False
    ),
]
Prefix = Annotated[str, typer.Option(envvar="BATCHLIMIT_PREFIX", help="As of the limiters.", show_envvar=True)]
Form = Annotated[Output, typer.Option("--output", "-o", help="The form of the output.")]
Why = Annotated[str, typer.Option(help="The reason, for the log and for others.")]
Who = Annotated[str | None, typer.Option(help="Who the log says it was.", show_default="user@machine")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DEFAULT_PREFIX = "batchlimit"


@contextmanager
def opened(url: str, prefix: str, who: str | None = None) -> Iterator[Admin]:
    """Open the store, and end the command with a message and a status if something is wrong."""
    try:
        with Admin.from_url(url, prefix=prefix, who=who) as admin:
            if not isinstance(admin.store, RedisStore):
                raise ValueError("its buckets are within one process; use the URL of a Redis or Valkey server")
            yield admin
    except RulesChanged as error:
        _end(error, NOTHING_DONE)
    except StoreUnavailable as error:
        _end(error, AWAY)
    except (ValueError, TypeError, ImportError) as error:
        _end(error, WRONG)


def confirm(question: str, yes: bool) -> None:
    """End the command unless somebody at the terminal, or `--yes`, says that it is meant."""
    if not yes:
        typer.confirm(question, abort=True, err=True)


def buckets_of(prefix: str) -> str:
    """Return the pattern by which SCAN finds buckets, those alone, of a prefix that may have wildcards."""
    literal = re.sub(r"([*?\[\]\\])", r"\\\1", prefix)
    return f"{{{literal}:*}}"


def _end(error: Exception, status: int) -> None:
    say(f"batchlimit: {error}")
    sys.exit(status)
