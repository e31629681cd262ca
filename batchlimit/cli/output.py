"""What a command prints: a table for people, or JSON or YAML for programs, in the same words.

A stranger chooses keys and reasons: what a terminal would obey stands there escaped, in every form.
"""

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from batchlimit.base.redaction import escaped

Row = dict[str, Any]
_WIDE = 4096
"""Characters of a line, where no terminal says how many fit."""


class Output(StrEnum):
    """Forms of output."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def show(rows: Sequence[Row] | Row, output: Output, *, empty: str = "", columns: Sequence[str] = ()) -> None:
    """Print one thing, or several of a kind.

    Args:
        rows: what to print.
        output: the form.
        empty: what a table says in place of no rows.
        columns: of a table (default: all that the first row has).
    """
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
            table.add_row(name, _cell(value))
    elif not rows:
        say(empty)
        return
    else:
        names = columns or tuple(rows[0])
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in names:
            table.add_column(name.upper().replace("_", " "), overflow="fold")
        for row in rows:
            table.add_row(*(_cell(row.get(name)) for name in names))
    console.print(table)


def _cell(value: Any) -> Text:
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
