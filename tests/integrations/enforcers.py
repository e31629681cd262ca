"""Both enforcers behind one face, on buckets in memory in whose time nothing happens by itself."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from batchlimit import AsyncRateLimiter, RateLimiter, StoreUnavailable
from batchlimit.bucket.messages import Ask, Grant
from batchlimit.integrations.enforcement import AsyncEnforcer, Enforcer, Outcome, Refusal, Response, RouteLimit
from batchlimit.integrations.headers import Fields
from batchlimit.quota.quota import Quota
from batchlimit.rules import Request, Rule, Rules
from batchlimit.stores import MemoryStore
from tests.apis.blocking import Awaited
from tests.sync.stage import Clock, Stage


class Apart(Stage):
    """A store of which some keys can be away."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(MemoryStore(clock))
        self.away: set[str] = set()

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        if key in self.away:
            raise StoreUnavailable("away")
        return super().take(key, quota, ask)

    def part(self, key: str) -> str:
        return key


class OfEitherApi:
    """Something with a `limiter` of one of both APIs, whose calls are awaited or not."""

    limiter: Any

    def __init__(self, asynchronous: bool) -> None:
        self._loop = asyncio.Runner() if asynchronous else None

    def close(self) -> None:
        self._do(self.limiter.close)
        if self._loop is not None:
            self._loop.close()

    def _do(self, call: Any, *arguments: Any, **options: Any) -> Any:
        if self._loop is None:
            return call(*arguments, **options)
        return self._loop.run(_awaited(call, arguments, options))


class Twin(OfEitherApi):
    """One of both enforcers."""

    def __init__(self, asynchronous: bool, rules: Iterable[Rule], clock: Clock, **options: Any) -> None:
        self.clock, self.store, self.rules = clock, Apart(clock), Rules(rules)
        super().__init__(asynchronous)
        limits = {name: options.pop(name) for name in ("on_failure", "sizer", "mode") if name in options}
        fields = Fields(secret=b"s", chance=lambda: 0.0)
        options = {"headers": fields, "clock": clock, **options}
        self.enforcer: Any
        if asynchronous:
            self.limiter = AsyncRateLimiter(Awaited(self.store), self.rules.quotas, clock=clock, **limits)
            self.enforcer = AsyncEnforcer(self.limiter, self.rules, **options)
        else:
            self.limiter = RateLimiter(self.store, self.rules.quotas, clock=clock, **limits)
            self.enforcer = Enforcer(self.limiter, self.rules, **options)

    def admit(self, method: str = "GET", path: str = "/", /, **identity: Any) -> Outcome:
        found: Outcome = self._do(self.enforcer.admit, Request(method, path, identity))
        return found

    def refused(self, method: str = "GET", path: str = "/", /, **identity: Any) -> Refusal:
        """Ask for what is refused."""
        refusal = self.admit(method, path, **identity).refusal
        assert refusal is not None
        return refusal

    def admit_request(self, request: Request, **options: Any) -> Outcome:
        found: Outcome = self._do(self.enforcer.admit, request, **options)
        return found

    def ask(self, limit: RouteLimit, outcome: Outcome, *known: Mapping[str, object]) -> Refusal | None:
        found: Refusal | None = self._do(self.enforcer.ask, limit, outcome, *known)
        return found

    def settle(self, outcome: Outcome, response: Response) -> None:
        self._do(self.enforcer.settle, outcome, response)

    def left(self, key: str) -> int:
        """What is left of a key."""
        found: int = self._do(self.limiter.peek, key).remaining
        return found

    def counts(self, rule: str) -> dict[str, int]:
        counts = self.enforcer.statistics().rules[rule]
        return {name: value for name in counts.__slots__ if (value := getattr(counts, name))}


Make = Callable[..., Twin]


async def _awaited(call: Any, arguments: Any, options: Any) -> Any:
    return await call(*arguments, **options)
