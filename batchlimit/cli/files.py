"""The commands for files of rules: `check` and `diff`, for CI and for reviewers. They ask no store."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from batchlimit.cli.output import Output, Row, json_of, say, show
from batchlimit.cli.store import NOTHING_DONE, WRONG, Form
from batchlimit.redaction import escaped
from batchlimit.rules import RuleFile, RulesError
from batchlimit.rules.files.loader import Loader, decoded, format_of
from batchlimit.rules.files.schema import SCHEMA
from batchlimit.rules.rule import CHECKS

_Terms = dict[str, str | None]


def check(
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE...", help="Rules in TOML or YAML.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema for editors.")] = False,
    output: Form = Output.TABLE,
) -> None:
    """Say what is wrong with files of rules, by line and column. Status 1 if anything is, 2 if there is no file."""
    if schema:
        print(json_of(SCHEMA, indent=2))
        return
    if not files:
        raise typer.BadParameter("name a file, or use --schema")
    try:
        found = [each for path in files for each in _problems(path)]
    except OSError as error:
        _end(error)
    if output is not Output.TABLE:
        show([_row(each) for each in found], output)
    else:
        for each in found:
            print(escaped(str(each)))
    say(f"{len(found)} problems in {len(files)} files")
    if found:
        raise typer.Exit(NOTHING_DONE)


def diff(
    old: Annotated[str, typer.Argument(help="Rules in TOML or YAML.")],
    new: Annotated[str, typer.Argument(help="The rules that are to take their place.")],
    output: Form = Output.TABLE,
) -> None:
    """Show what another file of rules changes, by rule, limit and field. Status 1 if anything."""
    try:
        before, after = _said(old), _said(new)
    except (RulesError, OSError) as error:
        _end(error)
    rows = list(_changes(before, after))
    show(rows, output, empty="both say the same")
    if rows:
        raise typer.Exit(NOTHING_DONE)


@dataclass(frozen=True)
class _Named:
    """A function that a file names, which nobody has here."""

    name: str

    def __call__(self, about: object) -> int:
        return 1

    def __str__(self) -> str:
        return self.name


class _AnyName(dict[str, _Named]):
    """Functions of all names."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> _Named:
        return _Named(name)


def _problems(path: str) -> list[RulesError]:
    """Return all that is wrong with each rule by itself, or what is wrong between them."""
    try:
        RuleFile(path, functions=_AnyName())
    except RulesError as error:
        try:
            text = decoded(Path(path).read_bytes(), path)
            return Loader(text, format_of(path), path, _AnyName()).problems() or [error]
        except RulesError:
            return [error]
    return []


def _row(error: RulesError) -> Row:
    where = {"file": error.source, "line": error.line, "column": error.column}
    return where | {"rule": error.rule, "field": error.field, "problem": error.problem}


def _said(path: str) -> dict[tuple[str, str], _Terms]:
    """Return what a file says, by rule and by limit."""
    rules, limits = RuleFile(path, functions=_AnyName()).said
    said = {("rule", rule.name): _terms(rule) for rule in rules}
    of_rules = rules.limits
    return said | {("limit", name): _terms(each) for name, each in limits.by_name.items() if name not in of_rules}


def _terms(of: object) -> _Terms:
    values = {field: getattr(of, field, None) for field in CHECKS if field != "name"}
    return {field: None if value is None else _spelled(value) for field, value in values.items()}


def _spelled(value: object) -> str:
    codes = getattr(value, "codes", value)
    return ", ".join(map(str, codes)) if isinstance(codes, tuple) else str(value)


def _changes(before: dict[tuple[str, str], _Terms], after: dict[tuple[str, str], _Terms]) -> Iterator[Row]:
    for what, name in before | after:
        old, new = before.get((what, name), {}), after.get((what, name), {})
        for field in old or new:
            if old.get(field) != new.get(field):
                yield {"what": what, "name": name, "field": field, "old": old.get(field), "new": new.get(field)}


def _end(error: Exception) -> NoReturn:
    say(f"batchlimit: {error}")
    sys.exit(WRONG)
