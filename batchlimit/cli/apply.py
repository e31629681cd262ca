"""The commands for files of rules: `rules apply`, and `check` and `diff`, which ask no store."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from batchlimit.admin.terms import wished
from batchlimit.base.redaction import escaped
from batchlimit.cli.options import DEFAULT_PREFIX, Form, Output, Prefix, Url, Who, Why, Yes
from batchlimit.cli.output import NOTHING_DONE, Row, confirm, end, opened, say, show
from batchlimit.quota.overrides.known import ending
from batchlimit.quota.overrides.override import FOR_ALL, Override
from batchlimit.rules import RuleFile, RulesError
from batchlimit.rules.files.loader import Loader, decoded, format_of
from batchlimit.rules.files.schema import SCHEMA
from batchlimit.rules.rule import CHECKS


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
        changes: list[tuple[str, Override | None, Override | None]]
        changes = [(each.name, change.before.get(each.name), each) for each in change.set]
        changes += [(each.name, each, None) for each in change.removed]
        rows: list[Row] = [
            {"name": name, "before": old and f"{old}{ending(old)}", "after": new and f"{new}{ending(new)}"}
            for name, old, new in changes
        ]
        show(rows, output, empty="nothing differs")
        if not dry_run and (change.set or change.removed):
            for each in change.set:
                if each.is_for_all:
                    confirm(f"{each.name!r} {FOR_ALL}. Set it?", yes)
            if change.removed:
                confirm(f"Remove overrides: {len(change.removed)}. Go on?", yes)
            change = admin.apply(wanted, prune=prune, why=why)
        would = "would be " if dry_run else ""
        say(f"{len(change.set)} {would}set, {len(change.removed)} {would}removed, {change.unchanged} unchanged")


def _read(path: Path) -> dict[str, Any]:
    """Return what a file wishes, by name. Raises ValueError."""
    source = str(path)
    try:
        text = decoded(path.read_bytes(), source)
    except OSError as error:
        raise ValueError(f"{source} cannot be read: {error.strerror}") from error
    loader = Loader(text, format_of(source), source, {})
    found = loader.data.get("overrides") if isinstance(loader.data, dict) else None
    if not isinstance(found, dict):
        raise RulesError(
            "there is no table of overrides: names or patterns of keys, each with its quota", source=source
        )
    for name, wish in found.items():
        try:
            wished({str(name): wish}, "", "", time.time())
        except (ValueError, TypeError) as error:
            place = loader.place(("overrides", name), of_key=True)
            raise RulesError(str(error), source=source, line=place.line, column=place.column) from error
    return {str(name): wish for name, wish in found.items()}


_Terms = dict[str, str | None]


def check(
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE...", help="Rules in TOML or YAML.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema for editors.")] = False,
    output: Form = Output.TABLE,
) -> None:
    """Say what is wrong with files of rules, by line and column. Status 1 if anything is, 2 if there is no file."""
    if schema:
        show(SCHEMA, Output.JSON)
        return
    if not files:
        raise typer.BadParameter("name a file, or use --schema")
    found, unread = list[RulesError](), list[OSError]()
    for path in files:
        try:
            found += _problems(path)
        except OSError as error:
            unread.append(error)
    if output is not Output.TABLE:
        fields = "line", "column", "rule", "field", "problem"
        show([{"file": each.source} | {name: getattr(each, name) for name in fields} for each in found], output)
    else:
        for each in found:
            print(escaped(str(each)))
    if len(unread) < len(files):
        say(f"problems: {len(found)}, files: {len(files) - len(unread)}")
    if unread:
        end(OSError("; ".join(map(str, unread))))
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
        end(error)
    rows: list[Row] = []
    for what, name in before | after:
        was, now = before.get((what, name), {}), after.get((what, name), {})
        rows += [
            {"what": what, "name": name, "field": field, "old": was.get(field), "new": now.get(field)}
            for field in was or now
            if was.get(field) != now.get(field)
        ]
    show(rows, output, empty="both say the same")
    if rows:
        raise typer.Exit(NOTHING_DONE)


class _NamedFunction(str):
    """A function that a file names, which nobody has here."""

    __slots__ = ()

    def __call__(self, about: object) -> int:
        return 1


class _AnyName(dict[str, _NamedFunction]):
    """Functions of all names."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> _NamedFunction:
        return _NamedFunction(name)


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


def _said(path: str) -> dict[tuple[str, str], _Terms]:
    """Return what a file says, by rule and by limit."""
    rules, limits = RuleFile(path, functions=_AnyName()).said
    said = {("rule", rule.name): _terms(rule) for rule in rules}
    of_rules = rules.limits
    said |= {("exempt", str(each)): {"match": str(each)} for each in rules.exemption.given}
    return said | {("limit", name): _terms(each) for name, each in limits.by_name.items() if name not in of_rules}


def _terms(of: object) -> _Terms:
    found: _Terms = {}
    for field in [each for each in CHECKS if each != "name"]:
        value = getattr(of, field, None)
        codes = getattr(value, "codes", value)
        text = ", ".join(map(str, codes)) if isinstance(codes, tuple) else str(value)
        found[field] = None if value is None else text or None
    return found
