"""Where the limiter of a web application comes from: its owner, or the rules and the URL of a store."""

import threading
from collections.abc import Callable, Mapping
from typing import TypedDict

from batchlimit import FailurePolicy, Quota, RateLimiter
from batchlimit.overrides.key_rule import Mode
from batchlimit.rules import RuleFile, Rules

LimiterSource = RateLimiter | str | Callable[[], RateLimiter]


class Options(TypedDict):
    """Arguments of a limiter that rules decide."""

    quota: Mapping[str, Quota] | RuleFile
    on_failure: Mapping[str, FailurePolicy]
    mode: Mapping[str, Mode]


def options_of(rules: Rules | RuleFile) -> Options:
    """Return quotas, failure policies and modes of rules, as a limiter takes them; closed where a rule says nothing.

    Args:
        rules: the rules, or their file.

    Returns:
        Arguments for `from_url` of a limiter.
    """
    if isinstance(rules, RuleFile):  # which says the rest as well
        return {"quota": rules, "on_failure": {"*": FailurePolicy.closed()}, "mode": {}}
    return {"quota": rules.quotas, "on_failure": rules.on_failure, "mode": rules.mode}


class LimiterSupply:
    """The limiter of a threaded application: made once, at the latest by the first request.

    A URL is looked at now, so that a typo raises at the start; the limiter connects at its first call, so a server may
    fork after this. A limiter that is made here is closed when the process ends.

    Args:
        source: a RateLimiter, a URL, or a function that makes a RateLimiter.
        rules: their quotas and failure policies are those of a limiter that is made from a URL.

    Raises:
        TypeError: the source is none of the three.
        ValueError: the URL has a typo.
    """

    def __init__(self, source: LimiterSource, rules: Rules | RuleFile) -> None:
        if not isinstance(source, RateLimiter | str) and not callable(source):
            kind = type(source).__name__
            raise TypeError(f"limiter is a RateLimiter, a URL or a function that makes a RateLimiter, not {kind}")
        self._source, self._rules, self._lock = source, rules, threading.Lock()
        self._limiter = source if isinstance(source, RateLimiter) else None
        if isinstance(source, str) and not source.startswith("embedded://"):
            self.limiter()

    def __repr__(self) -> str:
        return f"<LimiterSupply of {self._limiter or 'no limiter yet'}>"

    def limiter(self) -> RateLimiter:
        """Return the limiter; make it, if there is none yet."""
        if self._limiter is None:
            with self._lock:
                if self._limiter is None:
                    self._limiter = self._made()
        return self._limiter

    def _made(self) -> RateLimiter:
        source = self._source
        assert not isinstance(source, RateLimiter)
        return RateLimiter.from_url(source, **options_of(self._rules)) if isinstance(source, str) else source()
