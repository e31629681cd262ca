"""The command that sets the overrides of a file."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from batchlimit.admin import Difference
from batchlimit.cli.output import Output, Row, say, show
from batchlimit.cli.store import DEFAULT_PREFIX, Form, Prefix, Url, Who, Why, Yes, confirm, opened
from batchlimit.overrides.override import FOR_ALL
from batchlimit.rules.errors import RulesError
from batchlimit.rules.files.document import SyntaxProblem
from batchlimit.rules.files.loader import decoded, format_of


def apply(
    file: Annotated[Path, typer.Argument(help="TOML or YAML, with a table of overrides by name.")],
    url: Url,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the difference, and change nothing.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="Remove all overrides that the file does not name.")] = False,
    why: Why = "",
    who: Who = None,
    yes: Yes = False,
    prefix: Prefix = DEFAULT_PREFIX,
    output: Form = Output.TABLE,
) -> None:
    """Set the overrides of a file in one change, all or none."""
    with opened(url, prefix, who) as admin:
        wanted = _read(file)
        change = admin.apply(wanted, prune=prune, why=why, dry_run=True)
        show(_rows(change), output, empty="nothing differs")
        if not dry_run and (change.set or change.removed):
            _confirm(change, yes)
            change = admin.apply(wanted, prune=prune, why=why)
        would = "would be " if dry_run else ""
        say(f"{len(change.set)} {would}set, {len(change.removed)} {would}removed, {change.unchanged} unchanged")


def _confirm(change: Difference, yes: bool) -> None:
    for each in change.set:
        if each.is_for_all:
            confirm(f"{each.name!r} {FOR_ALL}. Set it?", yes)
    if change.removed:
        confirm(f"Remove {len(change.removed)} overrides?", yes)


def _rows(change: Difference) -> list[Row]:
    made = [{"name": each.name, "before": change.before.get(each.name), "after": each} for each in change.set]
    gone = [{"name": each.name, "before": each, "after": None} for each in change.removed]
    return [{field: value and str(value) for field, value in row.items()} for row in made + gone]


def _read(path: Path) -> dict[str, Any]:
    """Return what a file wishes, by name. Raises ValueError."""
    source = str(path)
    try:
        text = decoded(path.read_bytes(), source)
    except OSError as error:
        raise ValueError(f"{source} cannot be read: {error.strerror}") from error
    format_ = format_of(source)
    try:
        data = import_module(f"batchlimit.rules.files.{format_}").read(text).data
    except SyntaxProblem as error:
        raise RulesError(f"not {format_.upper()}: {error}", source=source, line=error.place.line) from error
    except ModuleNotFoundError as error:
        raise ValueError(str(error)) from error
    found = data.get("overrides") if isinstance(data, dict) else None
    if not isinstance(found, dict):
        raise RulesError(
            "there is no table of overrides: names or patterns of keys, each with its quota", source=source
        )
    return {str(name): wish for name, wish in found.items()}
