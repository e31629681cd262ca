"""The rules held against one request: what every web face shares, and none of it knows a framework.

A face makes a `rules.Request`, has it admitted, runs the application or writes the refusal, and has it settled:

    outcome = await enforcer.admit(request)       # Enforcer: without await
    if outcome.refusal is None:
        ... run the application; add outcome.headers to its response ...
        await enforcer.settle(outcome, Response(status))   # whatever happened, once, and only if outcome.charges
    else:
        ... write outcome.refusal: status, headers, body ...

All rules in "enforce" mode are charged at once, or none of them (`decide_all`). Those in "shadow" mode are asked
afterwards, each by itself. Nothing that goes wrong here becomes an exception of the application.

The rule stands once, in generators: each yields what a thread calls and a task awaits, and is sent the result.
"""

import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CoroutineType
from typing import Any, Generic, Literal, TypeVar

from batchlimit import AsyncRateLimiter, BatchLimitError, Decision, RateLimiter, StoreUnavailable
from batchlimit.integrations.counters import Counters, EnforcementStatistics
from batchlimit.integrations.headers import Fields, Form, Header, RuleDecision, Told
from batchlimit.integrations.problem import MEDIA_TYPE, Problem, quota_exceeded, reduced_capacity, unidentified
from batchlimit.rules import Request, Rule, Rules, Unmade

T = TypeVar("T")
L = TypeVar("L", RateLimiter, AsyncRateLimiter)
Steps = Generator[Any, Any, T]
Unidentified = Literal["refuse", "admit"]
_logger = logging.getLogger("batchlimit")
_AGAIN = 1.0
"""Retry-After (s) while the store is away."""
_SILENCE = 7200.0
NO_STORE = (b"cache-control", b"no-store")


@dataclass(frozen=True, slots=True)
class Response:
    """What the `charge` of a rule decides by.

    Attributes:
        status: the HTTP status; 500 if the application raised before it responded, 499 if the client went away before.
        headers: the fields of the response, names in lower case (default none).
        error: what the application raised, or asyncio.CancelledError (default None).
        complete: whether the body was sent to its end (default True).
        sent: bytes of the body that were sent (default 0).

    Example:
        >>> Response(401).status
        401
    """

    status: int
    headers: Sequence[Header] = ()
    error: BaseException | None = None
    complete: bool = True
    sent: int = 0


class FailedIdentity(Mapping[str, object]):
    """Values for keys where the function that tells who asks has raised: rules that need more than these have no key.

    Args:
        known: what is known all the same, such as {"ip": "192.0.2.1"}.
        error: what was raised.

    Example:
        >>> FailedIdentity({"ip": "192.0.2.1"}, OSError("away"))["ip"]
        '192.0.2.1'
    """

    def __init__(self, known: Mapping[str, object], error: Exception) -> None:
        self._known, self._error = known, error

    def __repr__(self) -> str:
        return f"<FailedIdentity {self._error!r}>"

    def __getitem__(self, name: str) -> object:
        """Return what is known; else raise what was raised."""
        if name in self._known:
            return self._known[name]
        raise self._error

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


Charged = tuple[Rule, str, int]
"""A rule, the key that it charges, and how many tokens. A plain tuple: to make one of a named type takes 300 ns."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request does not reach the application, and what it is answered.

    Attributes:
        status: 429, 403 (nobody can say who asks) or 503 (the store is away).
        rules: the names of the rules that refused.
        key: the key that is short, or whose bucket nobody can reach; None if there is none.
        retry_after: seconds; None if nothing is known, inf for never.
        headers: all fields of the answer but its length.
        body: problem details as JSON.
        error: what went wrong; None for a limit.
    """

    status: int
    rules: tuple[str, ...]
    key: str | None
    retry_after: float | None
    headers: list[Header]
    body: bytes
    error: Exception | None = None


@dataclass(slots=True)
class Outcome:
    """What the rules say of one request.

    Attributes:
        refusal: why it is refused; None: it is admitted.
        headers: the fields for the application's response.
        charges: what `settle` has to hear the response for; mostly nothing.
        decisions: what each rule decided, for those who want to look.
    """

    refusal: Refusal | None = None
    headers: list[Header] = field(default_factory=list)
    charges: list[Charged] = field(default_factory=list)
    decisions: Mapping[str, Decision] = field(default_factory=dict)


class _Enforcement(Generic[L]):
    """What both APIs share."""

    def __init__(
        self,
        limiter: L | Callable[[], L],
        rules: Rules,
        *,
        headers: Form | Fields = "draft-11",
        unidentified: Unidentified = "refuse",
        silence: float = _SILENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if unidentified not in ("refuse", "admit"):
            raise ValueError(f"unidentified is 'refuse' or 'admit', not {unidentified!r}")
        self._limiter: Callable[[], Any] = limiter if callable(limiter) else lambda: limiter
        self.rules = rules
        self.fields = headers if isinstance(headers, Fields) else Fields(headers)
        self.counters = Counters([rule.name for rule in rules], silence, clock)
        self._admits_unidentified = unidentified == "admit"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.rules)} rules>"

    def statistics(self) -> EnforcementStatistics:
        """Return what became of the requests so far, by rule."""
        return self.counters.statistics()

    def refuse(
        self,
        problem: Problem,
        retry_after: float | None = None,
        decisions: Sequence[Told] = (),
        *,
        key: str | None = None,
        error: Exception | None = None,
    ) -> Refusal:
        """Return an answer of this form, for faces that refuse for reasons of their own, such as concurrency.

        Args:
            problem: status and body.
            retry_after: seconds; inf or None for no field.
            decisions: the rules that the fields tell of.
            key: the key that is short.
            error: what went wrong.

        Returns:
            The refusal, never to be stored by a cache.
        """
        body = problem.body()
        told: list[Header] = self.fields.refused(decisions, retry_after)
        headers = [(b"content-type", MEDIA_TYPE), NO_STORE, *told]
        return Refusal(problem.status, problem.policies, key, retry_after, headers, body, error)

    # The rule

    def _admit(self, request: Request) -> Steps[Outcome]:
        self.counters.request()
        applied, unmade = self.rules.applicable(request)
        if not applied and not unmade:
            self.counters.nothing_matched(request.method, request.path)
            return Outcome()
        counts = self.counters.rules
        for matched in applied:
            counts[matched.rule.name].matched += 1
        for each in unmade:
            counts[each.rule.name].matched += 1
        for each in unmade:
            if (refusal := self._without_key(each)) is not None:
                return Outcome(refusal)
        outcome = Outcome()
        enforced: list[Charged] = []
        shadows: list[Charged] = []
        for rule, key in applied:
            cost = rule.cost
            if cost.__class__ is not int:
                try:
                    cost = _checked((yield rule.cost(request)))  # type: ignore[operator]
                except Exception as error:  # noqa: BLE001  a function of the user's own
                    if (refusal := self._without_key(Unmade(rule, "its cost cannot be told", error))) is not None:
                        return Outcome(refusal)
                    continue
            (enforced if rule.mode == "enforce" else shadows).append((rule, key, cost))
        if enforced:
            yield from self._charge(outcome, enforced)
        if shadows and outcome.refusal is None:
            try:
                yield from self._ask_shadows(outcome, shadows)
            except BaseException as error:  # cancelled meanwhile: it will never run
                yield from self._settle(outcome, Response(499, error=error, complete=False))
                raise
        return outcome

    def _charge(self, outcome: Outcome, enforced: list[Charged]) -> Steps[None]:
        """Charge all of them or none, but for those whose bucket is away and which are open then."""
        while enforced:
            try:
                decisions: dict[str, Decision] = yield self._limiter().decide_all(_costs(enforced))
            except StoreUnavailable as error:
                if (refusal := self._away(enforced, error)) is not None:
                    outcome.refusal = refusal
                    return
            except Exception as error:  # noqa: BLE001  a cost beyond the burst, a closed limiter, a key without quota
                outcome.refusal = self._failed(enforced, error)
                return
            else:
                yield from self._charged(outcome, enforced, decisions)
                return

    def _charged(self, outcome: Outcome, enforced: list[Charged], decisions: dict[str, Decision]) -> Steps[None]:
        outcome.decisions = decisions
        for key, decision in decisions.items():
            if not decision.allowed:
                outcome.refusal = self._over(enforced, key, decision)
                return
        told = []
        for rule, key, _ in enforced:
            decision = decisions[key]
            if decision.source == "fallback" and rule.on_failure is not None and rule.on_failure.kind == "closed":
                yield from self._take_back(enforced)
                outcome.refusal = self._closed(rule, key, StoreUnavailable("the store is away", key=key))
                return
            told.append((rule.name, rule.quota, key, decision))
        counts = self.counters.rules
        for charged in enforced:
            counts[charged[0].name].acquired += 1
            if charged[0].charge is not None:
                outcome.charges.append(charged)
        outcome.headers = self.fields.of(told)

    def _failed(self, enforced: list[Charged], error: Exception) -> Refusal:
        if isinstance(error, ValueError) and (too_much := _beyond(enforced)) is not None:
            return self._over(enforced, too_much[1], _never(too_much[0]))
        _logger.error("a request was refused, for its limit could not be asked: %s", error, exc_info=error)
        return self.refuse(reduced_capacity(_names(enforced)), _AGAIN, error=error)

    def _over(self, enforced: list[Charged], key: str, decision: Decision) -> Refusal:
        short = [each for each in enforced if each[1] == key]
        for rule, _, _ in short:
            self.counters.rules[rule.name].refused += 1
        told = [RuleDecision(rule.name, rule.quota, key, decision) for rule, _, _ in short]
        return self.refuse(quota_exceeded(_names(short)), decision.retry_after, told, key=key)

    def _away(self, enforced: list[Charged], error: StoreUnavailable) -> Refusal | None:
        """Take out of the list whose bucket is away and which is open then; or return why the request is refused."""
        concerned = [each for each in enforced if each[1] == error.key] or list(enforced)
        for rule, key, _ in concerned:
            if rule.on_failure is None or rule.on_failure.kind != "open":
                return self._closed(rule, key, error)
        for each in concerned:
            self._count_away(each[0], error)
            enforced.remove(each)
        return None

    def _closed(self, rule: Rule, key: str, error: StoreUnavailable) -> Refusal:
        self._count_away(rule, error)
        self.counters.rules[rule.name].refused += 1
        return self.refuse(reduced_capacity([rule.name]), _AGAIN, key=key, error=error)

    def _count_away(self, rule: Rule, error: Exception) -> None:
        self.counters.rules[rule.name].store_away += 1
        self.counters.tell(rule.name, "away", "rule %r could not be asked, for the store is away: %s", error)

    def _without_key(self, unmade: Unmade) -> Refusal | None:
        rule, reason, error = unmade
        counts = self.counters.rules[rule.name]
        counts.no_key += 1
        admits = self._admits_unidentified or rule.mode == "shadow"
        what = "admitted without it" if admits else "refused"
        self.counters.tell(rule.name, "no key", "rule %r has no key for a request, which was %s: %s", what, reason)
        if error is not None:
            self.counters.tell(rule.name, "raised", "rule %r: a function of the application raised: %r", error)
        if admits:
            return None
        counts.refused += 1
        problem = unidentified([rule.name]) if error is None else reduced_capacity([rule.name])
        return self.refuse(problem, None if error is None else _AGAIN, error=error)

    def _ask_shadows(self, outcome: Outcome, shadows: list[Charged]) -> Steps[None]:
        for charged in shadows:
            rule, key, cost = charged
            counts = self.counters.rules[rule.name]
            try:
                decisions: dict[str, Decision] = yield self._limiter().decide_all({key: cost})
            except BatchLimitError as error:
                self._count_away(rule, error)
                continue
            except Exception as error:  # noqa: BLE001  such as a cost beyond the burst: it would have been refused
                self.counters.tell(rule.name, "shadow", "shadow rule %r could not be asked: %s", error)
                counts.shadow_refused += 1
                continue
            if all(decisions.values()):
                counts.acquired += 1
                if rule.charge is not None:
                    outcome.charges.append(charged)
            else:
                counts.shadow_refused += 1

    def _settle(self, outcome: Outcome, response: Response) -> Steps[None]:
        charges, outcome.charges = outcome.charges, []
        for rule, key, cost in charges:
            try:
                assert rule.charge is not None
                actual = _actual((yield rule.charge(response)), cost)
                if actual != cost:
                    self.counters.rules[rule.name].settled += 1
                    yield from self._correct(key, cost, actual)
            except Exception as error:  # noqa: BLE001  the response is on its way: nothing is left to tell the client
                self.counters.tell(
                    rule.name, "charge", "rule %r charged its cost, for `charge` did not decide: %r", error
                )

    def _correct(self, key: str, cost: int, actual: int) -> Steps[None]:
        try:
            if actual < cost:
                yield self._limiter().refund(key, cost - actual)
            else:
                reservation = yield self._limiter().reserve(key, 0)
                yield reservation.settle(actual - cost)
        except BatchLimitError as error:
            _logger.debug("a charge was not corrected: %s", error)

    def _take_back(self, enforced: list[Charged]) -> Steps[None]:
        for _, key, cost in enforced:
            yield from self._correct(key, cost, 0)


class Enforcer(_Enforcement[RateLimiter]):
    """Holds rules against requests, for threads.

    Args:
        limiter: a RateLimiter whose quotas are those of the rules, `RateLimiter.from_url(url, rules.quotas)`, or a
            function that returns it whenever it is needed.
        rules: the rules.
        headers: "draft-11" (default), "legacy", "both", "off", or Fields of one's own.
        unidentified: what becomes of a request of which a rule cannot make the key: "refuse" (default: 403, or 503
            where a function raised) or "admit" (without that rule). It is counted and told in either case.
        silence: seconds after which the log is told of rules that matched nothing (default 7,200).
        clock: returns seconds (default `time.monotonic`).

    Raises:
        ValueError: an argument cannot work.

    Example:
        >>> from batchlimit import RateLimiter
        >>> from batchlimit.rules import Request, Rule, Rules
        >>> rules = Rules([Rule("login", "1/hour", key="login:{ip}", match="POST /login")])
        >>> enforcer = Enforcer(RateLimiter.from_url("memory://", rules.quotas), rules)
        >>> request = Request("POST", "/login", {"ip": "192.0.2.1"})
        >>> enforcer.admit(request).refusal
        >>> enforcer.admit(request).refusal.status
        429
    """

    def admit(self, request: Request) -> Outcome:
        """Charge a request to all rules that apply, or to none of them.

        Args:
            request: the request.

        Returns:
            The Outcome. Nothing is raised, but for what ends the thread.
        """
        return run(self._admit(request))

    def settle(self, outcome: Outcome, response: Response) -> None:
        """Charge what the response says, once its body has ended, however it ended. A second call does nothing.

        Args:
            outcome: what `admit` returned.
            response: the response.
        """
        if outcome.charges:
            run(self._settle(outcome, response))


class AsyncEnforcer(_Enforcement[AsyncRateLimiter]):
    """Holds rules against requests, for the tasks of one event loop; the arguments are those of Enforcer.

    `cost` and `charge` of the rules may be coroutine functions here.

    Args:
        limiter: an AsyncRateLimiter whose quotas are those of the rules, or a function that returns it.
        rules, headers, unidentified, silence, clock: as for Enforcer.

    Example:
        >>> import asyncio
        >>> from batchlimit import AsyncRateLimiter
        >>> from batchlimit.rules import Request, Rule, Rules
        >>> async def main():
        ...     rules = Rules([Rule("login", "1/hour", key="login:{ip}", match="POST /login")])
        ...     async with AsyncRateLimiter.from_url("memory://", rules.quotas) as limiter:
        ...         enforcer = AsyncEnforcer(limiter, rules)
        ...         request = Request("POST", "/login", {"ip": "192.0.2.1"})
        ...         return [(await enforcer.admit(request)).refusal is None for _ in range(2)]
        >>> asyncio.run(main())
        [True, False]
    """

    async def admit(self, request: Request) -> Outcome:
        """Charge a request to all rules that apply, or to none of them; as Enforcer.admit."""
        return await drive(self._admit(request))

    async def settle(self, outcome: Outcome, response: Response) -> None:
        """Charge what the response says; as Enforcer.settle."""
        if outcome.charges:
            await drive(self._settle(outcome, response))


def run(steps: Steps[T]) -> T:
    """Go through steps in a thread: what they yield is the result."""
    try:
        step = next(steps)
        while True:
            if isinstance(step, Awaitable):
                if isinstance(step, CoroutineType):
                    step.close()
                step = steps.throw(TypeError("a function of a rule returned an awaitable, and a thread cannot await"))
            else:
                step = steps.send(step)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def drive(steps: Steps[T]) -> T:
    """Go through steps in a task: what they yield is awaited, if it can be."""
    try:
        step = next(steps)
        while True:
            try:
                is_awaitable = step.__class__ is CoroutineType or inspect.isawaitable(step)  # the latter takes 1 us
                value = await step if is_awaitable else step
            except BaseException as error:  # noqa: BLE001  the steps say what becomes of it
                step = steps.throw(error)
            else:
                step = steps.send(value)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def _costs(enforced: list[Charged]) -> dict[str, int]:
    costs: dict[str, int] = {}
    for _, key, cost in enforced:
        costs[key] = costs[key] + cost if key in costs else cost
    return costs


def _beyond(enforced: list[Charged]) -> Charged | None:
    """Return one whose cost never fits; usually a cost that a function returned."""
    return next((each for each in enforced if each[2] > each[0].quota.largest_cost), None)


def _never(rule: Rule) -> Decision:
    largest = rule.quota.largest_cost
    return Decision(False, largest, 0, float("inf"), float("inf"), "local")


def _names(some: Sequence[Charged]) -> list[str]:
    return [rule.name for rule, _, _ in some]


def _checked(cost: object) -> int:
    if isinstance(cost, bool) or not isinstance(cost, int) or cost < 0:
        raise ValueError(f"a cost is a whole number of tokens, at least 0, not {cost!r}")
    return cost


def _actual(told: object, cost: int) -> int:
    if isinstance(told, bool):
        return cost if told else 0
    return _checked(told)
