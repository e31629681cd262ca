"""Checks by name: each finds a mistake by which another limit holds than its user thinks, and tells the log once."""

import threading
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Literal, Self, get_args

from batchlimit.events import log_event
from batchlimit.quota.overrides.known import LimiterRules
from batchlimit.rules import Rule
from batchlimit.rules.key import KeyTemplate

CheckName = Literal[
    "memory-store", "shadow-only", "ipv6-prefix", "forwarded-untrusted", "proxy-unseen", "one-key", "unmatched",
    "silent-rule", "no-key", "other-quota", "late-patch", "disabled",
]  # fmt: skip
ChecksSetting = bool | Mapping[CheckName, bool]
"""All checks or none; or those by name that are not as by default: on."""

NAMES: tuple[CheckName, ...] = get_args(CheckName)
FIRST = 1000
"""How many requests `forwarded-untrusted`, `proxy-unseen` and `one-key` look at."""
_SITE_BITS = 64
"""The bits of an IPv6 address that a provider gives to one customer, at least."""

_MESSAGES: Mapping[CheckName, str] = {
    "memory-store": "memory:// is a limit of each process by itself: with n workers, n times as much is admitted",
    "shadow-only": "all rules are in shadow mode: nothing is refused; set mode='enforce' where a rule is to hold",
    "ipv6-prefix": "ipv6_prefix=%d limits parts of one customer's network, who has 2**64 addresses and changes them at "
    "will: 56 counts all of them as one client",
    "forwarded-untrusted": "requests carry X-Forwarded-For or Forwarded, and no proxy is trusted: {ip} is the peer's "
    "address. If a proxy stands before this server, all its clients share one limit: pass "
    "proxies=TrustedProxies([its network])",
    "proxy-unseen": "none of the first %d requests came through %r: {ip} is the peer's address, or the proxy's. Are "
    "its networks right, and does the proxy write the field that `header` names?",
    "one-key": "rule %r: all of the first %d requests have the same %s, so they share one bucket. Is `identify` right? "
    "For {ip}: does a proxy stand before this server, which `proxies` does not name?",
    "unmatched": "no rule matches %s %r: it is not limited%s",
    "silent-rule": "rule %r matched none of %d requests: %s",
    "no-key": "rule %r has no key for a request, which was %s: %s; let `identify` return the value, or for {ip} behind "
    "a Unix socket pass proxies=TrustedProxies(['unix'])",
    "other-quota": "the quota of rule %r is not in force: it is %s for %r, and the limiter has %s. Make the limiter "
    "with Rules(rules).quotas, or pass the URL of its store",
    "late-patch": "locks were patched after the limiter was made, as by gevent workers with --preload: a worker stops "
    "at its first wait, and answers nothing more. Call gevent.monkey.patch_all() before any other import",
    "disabled": "enabled=False: no request is limited",
}


class Checks:
    """Which checks are on, and what they found. Each tells the log once, and those of a rule once for each rule."""

    def __init__(self, given: ChecksSetting = True) -> None:
        found: Any = dict.fromkeys(NAMES, given) if isinstance(given, bool) else given
        if not isinstance(found, Mapping) or not all(isinstance(each, bool) for each in found.values()):
            raise TypeError(f"checks is True, False or a dict such as {{'unmatched': False}}, not {given!r}")
        for name in found:
            if name not in NAMES:
                near = get_close_matches(str(name), NAMES, 1)
                meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(NAMES)}"
                raise ValueError(f"there is no check {name!r}: {meant}")
        self.on = frozenset(name for name in NAMES if found.get(name, True))
        self._found: dict[tuple[CheckName, str], object] = {}
        self.lock: object = threading.Lock  # another one at the first request says that locks were patched meanwhile

    @property
    def findings(self) -> Mapping[CheckName, tuple[str, ...]]:
        """The names of the rules concerned, by the name of the check that found them; "" where no rule is meant."""
        found: dict[CheckName, tuple[str, ...]] = {}
        for name, rule in list(self._found):
            found[name] = (*found.get(name, ()), rule)
        return found

    def tell(self, name: CheckName, *arguments: object, rule: str = "") -> None:
        """Write to the log once, if the check is on."""
        if name not in self.on or (name, rule) in self._found:
            return
        mine = object()
        if self._found.setdefault((name, rule), mine) is mine:  # one of several threads
            log_event("web.check", _MESSAGES[name], *((rule, *arguments) if rule else arguments), check=name, rule=rule)

    def begin(self, source: object, rules: Iterable[Rule], ipv6_prefix: int, *, enabled: bool = True) -> Self:
        """Look for what can be seen before the first request."""
        if not enabled:
            self.tell("disabled")
            return self
        if isinstance(source, str) and source.startswith("memory://"):
            self.tell("memory-store")
        if (modes := {rule.mode for rule in rules}) and "enforce" not in modes:
            self.tell("shadow-only")
        if ipv6_prefix > _SITE_BITS:
            self.tell("ipv6-prefix", ipv6_prefix)
        return self

    def compare(self, rules: Iterable[Rule], limiter: LimiterRules) -> None:
        """Look for quotas of rules in place of which a limiter goes by others."""
        for rule in rules:
            keys = KeyTemplate(rule.key).pattern
            try:
                quota: object = limiter.stated(keys) or rule.quota
            except ValueError:
                quota = "none"
            if quota != rule.quota:
                self.tell("other-quota", rule.quota, keys, quota, rule=rule.name)
