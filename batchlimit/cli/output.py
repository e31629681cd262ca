"""What commands have in common: the store, what they print, and how they end when something is wrong.

A stranger chooses keys and reasons: what a terminal would obey stands there escaped, in every form.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from batchlimit.admin import Admin
from batchlimit.base.redaction import escaped
from batchlimit.cli.options import Output
from batchlimit.errors import RulesChanged, StoreUnavailable
from batchlimit.quota.overrides.overrides import Overrides
from batchlimit.stores.redis import RedisStore

Row = dict[str, Any]
_WIDE = 4096
"""Characters of a line, where no terminal says how many fit."""
NOTHING_DONE, WRONG, AWAY = 1, 2, 3
"""Exit statuses: nothing was changed, the command cannot work, the store does not answer."""
REMEDY = "`batchlimit unset --all` ends them, and so does setting any override anew"
_NAMED = 5
"""Overrides that a message names."""


def show(rows: Sequence[Row] | Row, output: Output, *, empty: str = "", columns: Sequence[str] = ()) -> None:
    """Print one thing, or several of a kind; `empty` stands for no rows, and `columns` are all of the first row."""
    match output:
        case Output.JSON:
            print(json_of(rows, indent=2))
        case Output.YAML:
            print(yaml_of(rows), end="")
        case Output.TABLE:
            _table(rows, empty, columns)


def say(text: str) -> None:
    """Tell people what was done; not on standard output, which programs read."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(escaped(text)))


def _table(rows: Sequence[Row] | Row, empty: str, columns: Sequence[str]) -> None:
    # Programs read a pipe by lines: there no row is folded to a width that nobody sees.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)
    if isinstance(rows, dict):
        table = Table(box=None, show_header=False, pad_edge=False)
        for name, value in rows.items():
            table.add_row(name, cell(value))
    elif not rows:
        say(empty)
        return
    else:
        names = columns or tuple(rows[0])
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in names:
            table.add_column(name.upper().replace("_", " "), overflow="fold")
        for row in rows:
            table.add_row(*(cell(row.get(name)) for name in names))
    console.print(table)


def cell(value: Any) -> Text:
    """Return a value as a table shows it."""
    told = "; ".join(map(str, value)) if isinstance(value, list) else value
    return Text("-" if told in (None, "") else escaped(str(told)))


def json_of(rows: Any, indent: int | None = None) -> str:
    """Return something as JSON."""
    text = json.dumps(rows, indent=indent, ensure_ascii=False)
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def yaml_of(rows: Any) -> str:
    """Return something as YAML; raises ValueError without PyYAML."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise ValueError("output as YAML needs PyYAML: pip install 'batchlimit[yaml]', or use -o json") from error

    class Dumper(yaml.SafeDumper):
        """Writes what is not printable as an escape, within double quotes."""

    tag = "tag:yaml.org,2002:str"
    Dumper.add_representer(str, lambda to, one: to.represent_scalar(tag, one, "" if one.isprintable() else '"'))
    text: str = yaml.dump(rows, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    is_shown = text.replace("\n", "").isprintable()
    return text if is_shown else str(yaml.dump(rows, Dumper=Dumper, sort_keys=False))


@contextmanager
def opened(url: str, prefix: str, who: str | None = None) -> Iterator[Admin]:
    """Open the store, and end the command with a message and a status if something is wrong."""
    if not url:
        end(ValueError("which store? Say --url, or set BATCHLIMIT_URL"))
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
    try:
        if not yes:
            typer.confirm(question, abort=True, err=True)
    except typer.Abort:
        typer.echo(err=True)
        end(ValueError("not done, for nobody said yes; --yes says so where nobody can"), NOTHING_DONE)


def end(error: Exception, status: int = WRONG) -> NoReturn:
    """End the command with a message and a status."""
    say(f"batchlimit: {error}")
    sys.exit(status)


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
