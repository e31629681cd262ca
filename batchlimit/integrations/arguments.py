"""Arguments that all faces take, as the rules need them."""

from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, TypedDict, TypeVar

from batchlimit.integrations.address import TrustedProxies
from batchlimit.integrations.checks import Checks, ChecksSetting
from batchlimit.integrations.counters import EnforcementStatistics
from batchlimit.integrations.enforcement import AsyncEnforcer, Enforcer, Unidentified
from batchlimit.integrations.headers import Fields, Form
from batchlimit.integrations.identity import Addresses
from batchlimit.integrations.source import L, LimiterMaker
from batchlimit.rules import Rule, RuleFile, Rules, RulesError
from batchlimit.rules.file import rules_of

E = TypeVar("E", Enforcer, AsyncEnforcer)


class FrontOptions(TypedDict, total=False):
    """Arguments that faces pass on as they are; `Front` says what each one means."""

    headers: Form | Fields
    proxies: TrustedProxies | None
    ipv6_prefix: int
    unidentified: Unidentified
    checks: ChecksSetting
    enabled: bool


class WebOptions(FrontOptions, total=False):
    """Those of faces that browsers speak to."""

    limit_preflight: bool


class Arguments:
    """The rules of a face, and what it makes of its other arguments."""

    def __init__(
        self,
        source: Any,
        rules: RuleFile | Rules | Iterable[Rule],
        *,
        messages: Rules | Iterable[Rule] = (),
        headers: Form | Fields = "draft-11",
        proxies: TrustedProxies | None = None,
        ipv6_prefix: int = 56,
        unidentified: Unidentified = "refuse",
        checks: ChecksSetting = True,
        enabled: bool = True,
        **unknown: object,
    ) -> None:
        for name in unknown:
            near = get_close_matches(name, WebOptions.__annotations__, 1)
            meant = "write Rules([...], exempt=...)" if name == "exempt" else near and f"did you mean {near[0]!r}?"
            raise TypeError(f"there is no option {name!r}{f': {meant}' if meant else ''}")
        if not isinstance(enabled, bool):
            raise TypeError(f"enabled is True or False, not {enabled!r}")
        self._of_requests = rules if isinstance(rules, RuleFile) else rules_of(rules)
        self._of_messages = rules_of(messages)
        for rule in self._of_messages:
            if rule.charge is not None:
                raise RulesError("a message has no response to charge by: leave it out", rule=rule.name, field="charge")
        if self._of_messages and isinstance(rules, RuleFile):
            raise ValueError("messages cannot have rules beside those of a RuleFile: put both into Rules")
        of_requests, of_messages = rules_of(self._of_requests), self._of_messages
        own = {**of_requests.own_quotas, **of_messages.own_quotas}
        self.rules = Rules([*of_requests, *of_messages], limits=own)
        if not self.rules:
            raise ValueError(
                "there are no rules, so nothing would be limited: add one, as Rule('all', '100/s', key='all:{ip}')"
            )
        self._source, self._limits = source, rules if isinstance(rules, RuleFile) else self.rules
        self.enabled = enabled
        if not enabled:
            self._source = "memory://"  # of which nothing is asked: not even a function that would make a limiter
        found = Checks(checks).begin(source, self.rules, ipv6_prefix, enabled=enabled)
        self.addresses = Addresses(proxies, ipv6_prefix, checks=found)
        fields = headers if isinstance(headers, Fields) else Fields(headers)
        self._options: dict[str, Any] = {"headers": fields, "unidentified": unidentified}
        self._options |= {"checks": found, "enabled": enabled}

    def maker(self, kind: type[L]) -> LimiterMaker[L]:
        """Return what makes the limiter. Raises TypeError: it cannot be made of this."""
        return LimiterMaker(kind, self._source, self._limits, self._options["checks"])

    def enforcers(self, kind: type[E], home: Any) -> tuple[E, E | None]:
        """Return what holds the rules against requests, and against messages; None: there are no rules for those."""
        own = home.made if isinstance(self._source, str) else None
        of_requests: E = kind(home.limiter, self._of_requests, own=own, **self._options)
        return of_requests, kind(home.limiter, self._of_messages, **self._options) if self._of_messages else None


def counted(of_requests: E, of_messages: E | None) -> EnforcementStatistics:
    """Return what became of requests, by rule; the rules for messages count messages."""
    counts = of_requests.statistics()
    if of_messages is None:
        return counts
    return replace(counts, rules={**counts.rules, **of_messages.statistics().rules})
