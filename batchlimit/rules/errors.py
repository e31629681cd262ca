"""What is wrong with rules, and where."""

import functools

from batchlimit.base.redaction import escaped


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
