"""Rules from a text: TOML or YAML, which is read as data and the places of its parts. An error says where it is."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from pathlib import PurePath
from typing import Any, BinaryIO, Literal, NamedTuple, TypeVar, get_args

from batchlimit.base.redaction import shown
from batchlimit.quota.failure_policy import FailurePolicy
from batchlimit.quota.overrides.code import CodeLimit
from batchlimit.rules.pattern import Pattern
from batchlimit.rules.rule import CHECKS, Rule, RulesError, checked

Format = Literal["toml", "yaml"]
Functions = Mapping[str, Callable[..., Any]]
R = TypeVar("R")

_FORMATS: dict[str, Format] = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
_REQUIRED = ("name", "quota", "key")
_OF_RULE_FILES = ("limits", "revision")
_FORM = {"toml": "[[rules]]", "yaml": "'rules:' and a list"}
# Of the message of a quota that cannot be read.
_COLUMN = re.compile(r"expected .*? at column (\d+)", re.DOTALL)
Path = tuple[str | int, ...]


def format_of(path: str) -> Format:
    """Return the format of a file by the end of its name. Raises RulesError."""
    if (found := _FORMATS.get(PurePath(path).suffix.lower())) is None:
        raise RulesError(f"rules are read from files named {', '.join(_FORMATS)}", source=path)
    return found


def opened(path: str) -> BinaryIO:
    """Open a file of rules. Raises OSError; the one of a missing file says where it was looked for."""
    try:
        return open(path, "rb")
    except FileNotFoundError as error:
        problem = f"{error.strerror}; name the file of rules by its whole path, for this is looked for in {os.getcwd()}"
        raise FileNotFoundError(error.errno, problem if not os.path.isabs(path) else error.strerror, path) from None


def decoded(data: bytes, source: str) -> str:
    """Return the text of a file, which is UTF-8. Raises RulesError."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RulesError(f"the file must be UTF-8: {error.reason}", source=source, line=line) from error


class Position(NamedTuple):
    """Line and column, both from 1; None where nobody knows."""

    line: int | None
    column: int | None


class SyntaxProblem(ValueError):
    """A text is not in its format: what is wrong, and its Position."""


class Document(NamedTuple):
    """The data of a text, and what returns the offset of a part of it, or of its key; None: it does not know."""

    data: Any
    offset: Callable[[Path, bool], int | None]


def place_at(text: str, offset: int) -> Position:
    """Return line and column of an offset."""
    return Position(text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))


class Loader:
    """Reads the rules of one text; RulesError: it is wrong. YAML needs PyYAML, else ModuleNotFoundError."""

    def __init__(self, text: str, format: Format, source: str, functions: Functions) -> None:  # noqa: A002
        if format not in get_args(Format):
            raise ValueError(f"a format is 'toml' or 'yaml', not {shown(format)}")
        self._text, self._format, self._source, self._functions = text, format, source, functions
        try:
            self.data, self._offset = import_module(f"batchlimit.rules.files.{format}").read(text)
        except SyntaxProblem as error:
            problem, place = error.args
            raise self._error(f"not {format.upper()}: {problem}", place) from error
        except (ValueError, RecursionError) as error:  # a number of 5,000 digits, the 99th of a month, 1,000 brackets
            raise self._error(f"the {format.upper()} cannot be read: {error}", Position(None, None)) from error

    def place(self, path: Path, *, of_key: bool = False) -> Position:
        """Return where a part stands, or else what it is part of."""
        while path and (found := self._offset(path, of_key)) is None:
            path, of_key = path[:-1], False
        return place_at(self._text, found if path and found is not None else 0)

    def rules(self) -> list[Rule]:
        """Return the rules. RulesError if one cannot work by itself."""
        data = self._table("rules", known=("rules", "identities", "exempt"))
        return self._rules(data)

    def said(self) -> tuple[list[Rule], dict[str, CodeLimit], int | None]:
        """Return all that a RuleFile may say: rules, limits by name, and a revision. RulesError as for `rules`."""
        data = self._table("rules", "limits", known=("rules", "limits", "revision", "identities", "exempt"))
        rules, given = self._rules(data) if "rules" in data else [], data.get("limits", {})
        if not isinstance(given, dict):
            raise self._error("limits are names or patterns of keys, each with its quota", self.place(("limits",)))
        limits = {str(name): self._limit(("limits", str(name)), value) for name, value in given.items()}
        revision = data.get("revision")
        if revision is not None and not (type(revision) is int and 0 <= revision < 2**53):
            raise self._error(f"revision is a whole number from 0, not {shown(revision)}", self.place(("revision",)))
        return rules, limits, revision

    def identities(self) -> list[str] | None:
        """Return the names that the file says every identity has; None: it does not say. RulesError as for `rules`."""
        given = self.data.get("identities")
        if given is None or (isinstance(given, list) and all(isinstance(each, str) for each in given)):
            return given
        raise self._error(f"identities are a list of names, not {shown(given)}", self.place(("identities",)))

    def exempt(self) -> list[str | Callable[..., Any]]:
        """Return the patterns and the functions that exempt requests. RulesError as for `rules`."""
        given = self.data.get("exempt", [])
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            raise self._error(f"exempt is a list of patterns, not {shown(given)}", self.place(("exempt",)))
        found: list[str | Callable[..., Any]] = []
        for number, text in enumerate(given):
            path: Path = ("exempt", number)
            if text.isidentifier():
                found.append(self._converted(path, "exempt", text, None))
                continue
            try:
                Pattern.parse(text)
            except ValueError as error:
                raise self._error(str(error).removeprefix("match "), self.place(path), None, "exempt") from error
            found.append(text)
        return found

    def problems(self) -> list[RulesError]:
        """Return all that is wrong with the file, and with each rule and limit by itself, each once."""
        data = self.data if isinstance(self.data, dict) else {}
        rules, limits = data.get("rules"), data.get("limits")
        tries: list[Callable[[], object]] = [self.said, self.identities, self.exempt]
        tries += [partial(self._rule, *each) for each in enumerate(rules if isinstance(rules, list) else ())]
        named = limits.items() if isinstance(limits, dict) else ()
        tries += [partial(self._limit, ("limits", str(name)), value) for name, value in named]
        found = {}
        for each in tries if data else tries[:1]:
            try:
                each()
            except RulesError as error:
                found[str(error)] = error
        return sorted(found.values(), key=lambda error: (error.line or 0, error.column or 0))

    def _table(self, *needed: str, known: tuple[str, ...]) -> dict[str, Any]:
        data = self.data
        if not isinstance(data, dict) or not any(name in data for name in needed):
            problem = f"there are no {' and no '.join(needed)}, so nothing is limited: add {_FORM[self._format]}"
            raise self._error(problem, Position(None, None))
        self._check_fields((), data, known, "the file")
        return data

    def _rules(self, data: Mapping[str, Any]) -> list[Rule]:
        if not isinstance(data["rules"], list) or not data["rules"]:
            raise self._error(f"rules are a list of at least one: write {_FORM[self._format]}", self.place(("rules",)))
        return [self._rule(number, item) for number, item in enumerate(data["rules"])]

    def _limit(self, path: Path, given: object) -> CodeLimit:
        name, found = f"limit {shown(path[1])}", dict[str, Any]()
        if not path[1]:
            raise self._error(f"{name}: an empty name is that of no key; '*' stands for every key", self.place(path))
        fields: Any = given if isinstance(given, dict) else {"quota": given}
        self._check_fields(path, fields, ("quota", "on_failure", "mode"), name)
        if "quota" not in fields:
            raise self._error(f"{name} has no quota", self.place(path), None, "quota")
        for field, value in fields.items():
            where = (*path, field) if fields is given else path
            try:
                found[field] = checked(field, self._converted(where, field, value, None), None)
            except RulesError as error:
                place = self._where(where, field, value, error.problem)
                raise self._error(f"{name}: {error.problem}", place, None, field) from error
        return CodeLimit(**found)

    def together(self, make: Callable[..., R], rules: list[Rule], identities: Iterable[str] | None) -> R:
        """Make Rules of these; RulesError: they contradict each other, at the last one of that name."""
        known = self.identities() if identities is None else identities
        exempt = self.exempt()
        try:
            return make(rules, identities=known, exempt=exempt)
        except RulesError as error:
            names = [item["name"] for item in self.data["rules"]]
            at = self.place(("rules", len(names) - 1 - names[::-1].index(error.rule), error.field or "name"))
            raise self._error(error.problem, at, error.rule, error.field) from error

    def _rule(self, number: int, item: object) -> Rule:
        path: Path = ("rules", number)
        if not isinstance(item, dict):
            raise self._error(f"a rule has fields such as name and quota; this is {shown(item)}", self.place(path))
        name = item["name"] if isinstance(item.get("name"), str) else None
        self._check_fields(path, item, tuple(CHECKS), "a rule", name)
        for field in _REQUIRED:
            if field not in item:
                raise self._error(f"the rule has no {field}", self.place(path), name, field)
        fields = {field: self._converted((*path, field), field, value, name) for field, value in item.items()}
        try:
            return Rule(**fields)
        except RulesError as error:
            where = self._where((*path, str(error.field)), error.field, item.get(error.field), error.problem)
            raise self._error(error.problem, where, name, error.field) from error

    def _check_fields(
        self, path: Path, item: Mapping[object, object], known: tuple[str, ...], what: str, rule: str | None = None
    ) -> None:
        for field in item:
            if field not in known:
                meant = get_close_matches(str(field), known, 1)
                hint = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(known)}"
                if not path and field in _OF_RULE_FILES:
                    hint = f"load it as a RuleFile, which stands wherever Rules do and has {field}"
                where = self.place((*path, str(field)), of_key=True)
                raise self._error(f"{what} has no field {shown(field)}: {hint}", where, rule, str(field))

    def _converted(self, path: Path, field: str, value: Any, rule: str | None) -> Any:
        """Return what a Rule takes, for what a text can say."""
        if field in ("cost", "charge", "exempt") and isinstance(value, str):
            if value not in self._functions:
                known = ", ".join(self._functions) or "none was given"
                problem = f"{field} names the function {shown(value)}; functions= has: {known}"
                raise self._error(problem, self.place(path), rule, field)
            return self._functions[value]
        if field == "on_failure" and isinstance(value, dict):
            self._check_fields(path, value, ("kind", "instances"), "on_failure", rule)
            try:
                return FailurePolicy(**value)
            except (ValueError, TypeError) as error:
                raise self._error(str(error), self.place(path), rule, field) from error
        return value

    def _where(self, path: Path, field: str | None, value: Any, problem: str) -> Position:
        """Return the place of what is wrong with the value of a field, as closely as it is known."""
        column = _COLUMN.search(problem)
        if field == "quota" and isinstance(value, str) and column:
            start = self._offset(path, False)
            for quotes in (0, 1):
                if start is not None and self._text.startswith(value, start + quotes):  # it is written as it is
                    return place_at(self._text, start + quotes + int(column[1]) - 1)
        for number, text in enumerate(value) if field == "match" and isinstance(value, list) else ():
            try:
                Pattern.parse(text)
            except (ValueError, TypeError):
                return self.place((*path, number))
        return self.place(path)

    def _error(self, problem: str, place: Position, rule: str | None = None, field: str | None = None) -> RulesError:
        return RulesError(problem, source=self._source, rule=rule, field=field, line=place.line, column=place.column)
