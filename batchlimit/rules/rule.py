"""One rule: which requests it is for, which key they are charged to, what the key may spend; and what is wrong."""

import functools
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from batchlimit.base.key import check_cost
from batchlimit.base.redaction import escaped, shown
from batchlimit.quota.failure_policy import FailurePolicy, Kind
from batchlimit.quota.quota import Quota
from batchlimit.rules.key import KeyTemplate
from batchlimit.rules.pattern import Pattern
from batchlimit.rules.request import Request


class RulesError(ValueError):
    """A rule, or a file of rules, cannot work: nothing of it is used. The operator mends it.

    Attributes:
        problem: what is wrong, and what to do.
        source: the file, or what `loads` was told; None if the rule comes from Python.
        rule: the name of the rule; None if it has none, or if the error is not of one rule.
        field: the field of the rule; None if the error is not of one field.
        line: the line in the file, from 1; None if the rule comes from Python.
        column: the column in that line, from 1; None if only the line is known.

    Example:
        >>> from batchlimit.rules import Rule, RulesError
        >>> try:
        ...     Rule("login", "5/minite", key="login:{ip}")
        ... except RulesError as error:
        ...     print(error)
        rule 'login': quota '5/minite': expected a unit (s, m, h, d or w) at column 3: 'minite'
    """

    def __init__(
        self,
        problem: str,
        *,
        source: str | None = None,
        rule: str | None = None,
        field: str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.source, self.rule, self.field = source, rule, field
        self.line, self.column = line, column

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes, keyword arguments and all."""
        where = {name: getattr(self, name) for name in ("source", "rule", "field", "line", "column")}
        return functools.partial(type(self), **where), (self.problem,)

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.source, self.line, self.column) if part is not None)
        whose = "" if self.rule is None else f"rule {self.rule!r}"
        return escaped(": ".join(part for part in (place, whose, self.problem) if part))


@dataclass(frozen=True, slots=True, init=False)
class Statuses:
    """A `charge` of a rule: the cost is charged if the response has one of these statuses, and given back if not.

    Args:
        codes: statuses such as 401, and classes of them such as "4xx"; kept as `codes`.

    Raises:
        ValueError, TypeError: a code is no status, or there is none.

    Example:
        >>> from types import SimpleNamespace
        >>> from batchlimit.rules import Rule, Statuses
        >>> Rule("login", "5/minute", key="login:{ip}", charge=[401, 403]).charge == Statuses(401, 403)
        True
        >>> Statuses("4xx")(SimpleNamespace(status=404))
        True
    """

    codes: tuple[int | str, ...]

    def __init__(self, *codes: int | str) -> None:
        if not codes:
            raise ValueError("no status is ever charged: name one, such as 401 or '4xx'")
        for code in codes:
            number = isinstance(code, int) and not isinstance(code, bool)
            if not number and not isinstance(code, str):
                raise TypeError(f"a status is a number such as 401, or '4xx', not {shown(code)}")
            if code not in ("1xx", "2xx", "3xx", "4xx", "5xx") and not (number and 100 <= int(code) <= 599):
                raise ValueError(f"a status is from 100 to 599, or a class such as '4xx', not {shown(code)}")
        object.__setattr__(self, "codes", codes)

    def __call__(self, response: object) -> bool:
        """Return whether a response is charged.

        Args:
            response: an object with a `status`.

        Returns:
            Whether its status is one of these.
        """
        status = response.status  # type: ignore[attr-defined]
        return status in self.codes or f"{status // 100}xx" in self.codes


Mode = Literal["enforce", "shadow"]
RuleCost = int | Callable[[Request], int | Awaitable[int]]
Charge = Callable[[Any], bool | int | Awaitable[bool | int]]
ChargeSetting = Charge | Sequence[int | str] | None
"""What is given as `charge`: a function of the response, or statuses."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:-]{0,63}").fullmatch
T = TypeVar("T")


@dataclass(frozen=True, slots=True, init=False)
class Rule:
    """Requests of some kind are charged to a key, which has a quota.

    Args:
        name: a name of its own, for headers, metrics and logs: letters, digits and `_.:/-`, 64 at most.
        quota: what each key may spend, as a Quota or its text.
        key: the key in the store, with fields to fill: "user:{user}", "login:{ip}". "all" is one bucket for all.
        match: the requests: "POST /login", "/api/*", "GET,PUT /items/{id}", or several such patterns (default "*": all
            requests). None: no request by itself; a route asks for the rule by its key. False in a file means None.
        cost: tokens of a request, at least 0, or a function of the Request, which may be asynchronous (default 1).
        charge: a function of the response, which may be asynchronous: True charges the cost, False nothing, and a
            number that many tokens. Or statuses: [401, "5xx"] charges these responses (default None: every response).
        on_failure: "closed", "open", "local" or a FailurePolicy, while the store is away (default None: what the
            limiter does).
        mode: "enforce", or "shadow": decide and count, but admit (default "enforce").
        replaces: the name of a rule, or several: they do not apply where this one does (default none).

    Attributes:
        name: as above.
        key: as above.
        cost: as above.
        mode, replaces: as above.
        quota: the Quota.
        match: the patterns; none, where routes ask for the rule.
        charge: the function or None; Statuses if statuses were given.
        on_failure: the FailurePolicy or None.

    Raises:
        RulesError: an argument cannot work.

    Example:
        >>> from batchlimit.rules import Rule
        >>> Rule("login", "5/minute", key="login:{ip}", match="POST /login", on_failure="closed").match
        ('POST /login',)
    """

    name: str
    quota: Quota
    key: str
    match: tuple[str, ...]
    cost: RuleCost
    charge: Charge | None
    on_failure: FailurePolicy | None
    mode: Mode
    replaces: tuple[str, ...]

    # Written by hand, so that a quota may be a text coming in and is a Quota for everyone who reads it.
    def __init__(
        self,
        name: str,
        quota: Quota | str,
        *,
        key: str,
        match: str | Sequence[str] | None = "*",
        cost: RuleCost = 1,
        charge: ChargeSetting = None,
        on_failure: FailurePolicy | Kind | None = None,
        mode: Mode = "enforce",
        replaces: str | Sequence[str] = (),
    ) -> None:
        given: dict[str, object] = {"name": name, "quota": quota, "key": key, "match": match, "cost": cost}
        given |= {"charge": charge, "on_failure": on_failure, "mode": mode, "replaces": replaces}
        for field, value in given.items():
            object.__setattr__(self, field, checked(field, value, name))
        fitting("cost", self.cost, self.quota, name)


def checked(field: str, value: object, rule: object) -> object:
    """Return the value of a field as a Rule keeps it. Raises RulesError."""
    try:
        return CHECKS[field](value)
    except (ValueError, TypeError) as error:
        raise RulesError(str(error), rule=rule if isinstance(rule, str) else None, field=field) from error


def fitting(field: str, cost: RuleCost, quota: Quota, rule: str) -> None:
    """Check that a cost can ever fit. Raises RulesError."""
    if isinstance(cost, int) and not quota.denies_all and cost > quota.largest_cost:
        problem = f"{cost} tokens never fit a burst of {quota.largest_cost}: lower the cost or raise the burst"
        raise RulesError(problem, rule=rule, field=field)


def _name(value: object) -> str:
    if not isinstance(value, str) or not _NAME(value):
        raise ValueError(
            f"a name has 1 to 64 letters, digits and _.:/-, and begins with one of the first two: {shown(value)}"
        )
    return value


def _match(value: object) -> tuple[str, ...]:
    if value is None or value is False:
        return ()
    if not (texts := _several(value)):
        raise ValueError("match is empty, so the rule can never match; '*' matches all requests, None those of routes")
    for text in texts:
        Pattern.parse(text).warn(text)
    return texts


def _charge(value: object) -> object:
    if value is None or callable(value):
        return value
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(f"charge is a function of the response, or statuses such as [401, '5xx'], not {shown(value)}")
    return Statuses(*value)


def _mode(value: object) -> object:
    if value not in get_args(Mode):
        raise ValueError(f"mode is 'enforce' or 'shadow', not {shown(value)}")
    return value


def _replaces(value: object) -> tuple[str, ...]:
    names = _several(value)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"replaces is the name of a rule, or several, not {shown(value)}")
    return names


def _several(value: object) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)


CHECKS: dict[str, Callable[[object], object]] = {
    "name": _name,
    "quota": lambda value: value if isinstance(value, Quota) else Quota.parse(value),  # type: ignore[arg-type]  # there
    "key": lambda value: KeyTemplate(value).text,
    "match": _match,
    "cost": lambda value: value if callable(value) else check_cost(value, 2**63, ""),
    "charge": _charge,
    "on_failure": lambda value: value if value is None or isinstance(value, FailurePolicy) else FailurePolicy(value),  # type: ignore[arg-type]
    "mode": _mode,
    "replaces": _replaces,
}
"""Each field of a rule, with what reads it."""
