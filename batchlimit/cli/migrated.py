"""What `migrate` has found in programs, and how it is printed: as a file of rules."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

_TOGETHER = "# There, the default limits were for each route by itself; here they are for all such routes together."


@dataclass(eq=False)
class MigratedRule:
    """A rule to print."""

    name: str  # those of the rule
    quotas: list[str]
    match: list[str] = field(default_factory=list)
    cost: int = 1
    replaces: bool = True  # whether the default limits do not hold where it does
    key: str = ""  # that of another rule, with another cost (default "": its name)
    # the rules of wider paths that do not hold where it does
    others: "list[MigratedRule]" = field(default_factory=list)
    value: str = ""  # the field of its key (default "": that of the limiter)


class MigratedLimiter(NamedTuple):
    """A limiter of a program: what holds for all its routes."""

    place: str = ""
    caller: str = ""  # what tells callers apart, if it is not their address
    defaults: tuple[str, ...] = ()  # quotas of each route by itself, and of all together
    together: tuple[str, ...] = ()


@dataclass
class Found:
    """What was read so far."""

    rules: dict[str, MigratedRule] = field(default_factory=dict)  # by name
    limiters: list[MigratedLimiter] = field(default_factory=list)
    exempt: list[str] = field(default_factory=list)  # patterns
    problems: list[str] = field(default_factory=list)  # what cannot be read, with its place

    @property
    def limiter(self) -> MigratedLimiter:
        """The first limiter with limits for all routes; if none has them, the first."""
        return max(self.limiters, key=lambda each: bool(each.defaults or each.together), default=MigratedLimiter())

    def differences(self) -> Iterator[str]:
        """Yield a remark for each limiter that says another thing than the one whose limits are taken."""
        taken = self.limiter
        for each in self.limiters:
            if each[1:] != taken[1:]:
                what = f"its default limits or key_func are not those of {taken.place}, which are taken"
                yield f"{each.place}: {what}: where they are of two programs, run migrate on each by itself"

    @property
    def has_rules(self) -> bool:
        """Whether there is a rule to print."""
        return bool(self.limiter.defaults or self.limiter.together or any(rule.quotas for rule in self.rules.values()))

    def toml(self) -> Iterator[str]:
        """Yield the lines of the file."""
        if self.exempt:
            yield f"exempt = {json.dumps(self.exempt)}\n"
        if self.limiter.defaults:
            yield _TOGETHER
        whole = [("application", self.limiter.together), ("default", self.limiter.defaults)]
        for rule in [MigratedRule(name, list(quotas), ["*"], replaces=False) for name, quotas in whole]:
            yield from self._rule(rule)
        for rule in self.rules.values():
            yield from self._rule(rule)

    def _rule(self, rule: MigratedRule) -> Iterator[str]:
        if not rule.quotas:
            return
        yield f"[[rules]]\nname = {json.dumps(rule.name)}\nquota = {json.dumps('; '.join(rule.quotas))}"
        value = rule.value or ("user" if self.limiter.caller else "ip")
        key = f"{rule.key or rule.name}:{{{value}}}"
        yield f"key = {json.dumps(key)}\nmatch = {json.dumps(rule.match)}"
        yield from [f"cost = {rule.cost}"] if rule.cost != 1 else []
        replaced = ["default"] if rule.replaces and self.limiter.defaults else []
        replaced += [other.name for other in rule.others if other.quotas]
        yield from [f"replaces = {json.dumps(replaced if len(replaced) > 1 else replaced[0])}"] if replaced else []
        yield ""
