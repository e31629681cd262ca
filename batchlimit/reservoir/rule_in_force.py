"""What holds for one key, by the code or by an operator's override, and what changes here when that does."""

import math

from batchlimit.quota.failure_policy import CLOSED, FailurePolicy
from batchlimit.quota.overrides.code import Rank
from batchlimit.quota.overrides.known import UNTOLD, OverridesCache
from batchlimit.quota.overrides.override import KeyRule, Mode
from batchlimit.reservoir.admission import QueueAdmission
from batchlimit.reservoir.denial_cache import NO_DENIALS, DenialCache
from batchlimit.reservoir.fallback import LEASE, NO_FALLBACK, Fallback, OpenBucket, Trial
from batchlimit.reservoir.key_state import KeyState
from batchlimit.reservoir.outage import borrow
from batchlimit.reservoir.requests import Requests
from batchlimit.reservoir.waiter import Verdict, Waiter


class RuleInForce:
    """Has a key go by its quota, mode, trial, weight and failure policy, as they are by now."""

    __slots__ = ("_admission", "_code", "_policy", "_requests", "_rules", "_state")

    def __init__(
        self,
        state: KeyState,
        admission: QueueAdmission,
        requests: Requests,
        rules: OverridesCache,
        code: KeyRule,
        policy: FailurePolicy,
    ) -> None:
        """`rules` are the overrides that the instance knows; `code` and `policy` hold where there is none."""
        self._state, self._admission, self._requests = state, admission, requests
        self._rules, self._code, self._policy = rules, code, policy

    def reconsider(self, now: float) -> None:
        """Go by the overrides that are known now. Tokens leased before go back with the next request, which is due."""
        state, in_force = self._state, self._rules.in_force
        own, mode, trial, state.weight, policy = in_force.rule(state.key, self._code)
        state.edition = in_force.edition
        if trial != (None if state.trial is None else state.trial.quota):  # what was counted stays
            state.count(now)
            state.trial = None if trial is None else Trial(trial, now)
        if (policy := policy or self._policy) != CLOSED or state.fallback is not NO_FALLBACK:
            _own_fallback(state)
            state.fallback.follow(policy)
        if own.denies_all:
            self._hold(now)
            state.queue.wake_leader()  # who may wait for another end now
        if (own, mode) == (state.own, state.mode):
            return
        if mode != state.mode:
            state.count(now)
            self._change_mode(mode, now)
        state.own, state.is_outdated = own, True
        self._admission.obey(own)
        self._requests.stop()
        if own.denies_all:
            state.lease.take_all()
        else:
            state.denials = NO_DENIALS
        state.queue.wake_leader()

    def recode(self, code: KeyRule, policy: FailurePolicy, rank: Rank, now: float) -> None:
        """Go by another code from now on, as far as no override says otherwise."""
        self._code, self._policy = code, policy
        self._state.code, self._state.rank = code.quota, rank
        self.reconsider(now)

    def look_again(self, now: float) -> None:
        """Look once a second whether a rate of 0 was lifted: no bucket is asked meanwhile, so no answer tells."""
        if now >= self._state.denials.dry_until:
            self._hold(now)

    def _hold(self, now: float) -> None:
        """Refuse everything. A key that is asked for rarely retires between two calls, so each new reservoir looks."""
        self._rules.hear(UNTOLD, now)
        until = self._rules.in_force.held_until(self._state.key, self._code)
        self._state.denials = DenialCache.holding(until, now)

    def admit_freely(self, waiter: Waiter, now: float) -> Verdict | None:
        """Admit all that wait, and whoever comes within half a second; return the verdict on this waiter."""
        state = self._state
        self._rules.hear(UNTOLD, now)
        wanted = math.ceil(state.demand.rate * LEASE) + state.queue.tokens
        state.fallback.bucket = open_bucket = OpenBucket(state.quota)
        borrow(state, open_bucket, wanted, now)
        self._admission.advance(now)
        return waiter.verdict

    def _change_mode(self, mode: Mode, now: float) -> None:
        """Tokens that are leased go back while everything is admitted; what was admitted freely ends with that."""
        state = self._state
        if state.mode == "open" and state.lease.borrowed:
            state.fallback.end(state.lease, now)
            state.lease.disown()
        state.mode = mode
        _own_fallback(state)
        if state.mode == "shadow":
            for waiter in state.queue:  # each that goes may let those behind it be served
                if waiter.verdict is None and waiter is not state.overdraft.waiter:
                    self._admission.refuse(waiter, now)


def _own_fallback(state: KeyState) -> None:
    """Give the key a Fallback that may change, which the one of all keys that fail closed may not."""
    if state.fallback is NO_FALLBACK:
        state.fallback = Fallback(CLOSED)
