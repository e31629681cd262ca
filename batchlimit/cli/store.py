"""Where the commands look: the options that all of them have, and how they end when something is wrong."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NoReturn

import typer

from batchlimit.admin import Admin
from batchlimit.cli.output import Output, say
from batchlimit.errors import RulesChanged, StoreUnavailable
from batchlimit.quota.overrides.overrides import Overrides
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
        end(error, NOTHING_DONE)
    except StoreUnavailable as error:
        end(error, AWAY)
    except (ValueError, TypeError, ImportError) as error:
        end(error, WRONG)


def confirm(question: str, yes: bool) -> None:
    """End the command unless somebody at the terminal, or `--yes`, says that it is meant."""
    if not yes:
        typer.confirm(question, abort=True, err=True)


def buckets_of(prefix: str) -> str:
    """Return the pattern by which SCAN finds buckets, those alone, of a prefix that may have wildcards."""
    literal = re.sub(r"([*?\[\]\\])", r"\\\1", prefix)
    return f"{{{literal}:*}}"


def end(error: Exception, status: int = WRONG) -> NoReturn:
    """End the command with a message and a status."""
    say(f"batchlimit: {error}")
    sys.exit(status)


REMEDY = "`batchlimit unset --all` ends them, and so does setting any override anew"
_NAMED = 5
"""Overrides that a message names."""


def lost(store: RedisStore, found: Overrides) -> Overrides:
    """Return what processes obeyed within the last minute, where the store has nothing; else nothing."""
    if found.revision:
        return Overrides()
    try:
        return store.rules.obeyed()
    except StoreUnavailable as error:
        if error.code != "NOPERM":
            raise
        return Overrides()


def told(overrides: Overrides) -> str:
    """Return their names and quotas, of many the first."""
    named = [f"{each.name} {each.said}" for each in overrides]
    more = [] if len(named) <= _NAMED else [f"{len(named) - _NAMED} more"]
    return ", ".join(named[:_NAMED] + more)
