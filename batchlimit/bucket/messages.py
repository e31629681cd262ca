"""What an instance and the bucket say to each other: an Ask, a Grant, a GiveBack, a Level.

Tuples, for every miss makes some of them: an Ask as a frozen dataclass took 1.5 us, so it takes 0.3.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from batchlimit.quota.quota import Quota


class Ask(NamedTuple):
    """One instance's request for tokens of one bucket. Counts are whole tokens, times are seconds.

    The pair (instance, seq) makes it idempotent: an ask that granted tokens answers its repetition with the same
    tokens.

    Attributes:
        instance: the name of the limiter instance.
        seq: the number of this request, one more than that of the last.
        need: the smallest grant that is useful; less is not granted at all. 0: a prefetch or a renewal.
        queued: what the callers who wait now would spend at once; at least `need`.
        want: what the instance would like to hold for the callers it expects; at least `queued`.
        held: tokens of earlier grants that are still here (default 0); whatever else was held has been spent.
        back: tokens of earlier grants that return unspent with this ask (default 0).
        max_wait: how far in the future a grant may begin (default 0).
        age: how long ago this instance's quota was set (default 0): of two of one rank the bucket obeys the younger.
        epoch: the epoch of the bucket that this instance last saw (default 0: none yet).
        fill: the share of the burst at which a bucket that was lost begins anew (default 1).
        round_trip: how long an answer takes (default 0: unknown): the lease lasts at least twice as long.
        weight: an instance of weight 2 has twice the share of an instance of weight 1 (default 1).
        rules: which rules of the store this instance knows (default 0: none). Of two quotas that differ the bucket
            obeys the one of the higher rank: that is `rules`, and if they are equal, `revision`.
        revision: of the instance's own quotas (default 0).
        look: whether the grant is to tell the revision of the overrides (default True).
        refused: tokens that this instance refused its callers since it last said so (default 0); only for people.
        shadow_refused: tokens that it admitted, and that a quota in shadow mode or on trial was to refuse (default 0).

    Example:
        >>> from batchlimit import Quota
        >>> from batchlimit.stores import Ask, MemoryStore
        >>> MemoryStore().take("ann", Quota.parse("10/hour"), Ask("one", seq=1, need=1, queued=1, want=5)).granted
        5
    """

    instance: str
    seq: int
    need: int
    queued: int
    want: int
    held: int = 0
    back: int = 0
    max_wait: float = 0.0
    age: float = 0.0
    epoch: int = 0
    fill: float = 1.0
    round_trip: float = 0.0
    weight: int = 1
    rules: int = 0
    revision: int = 0
    look: bool = True
    refused: int = 0
    shadow_refused: int = 0


class Grant(NamedTuple):
    """The bucket's answer to an Ask. Counts are whole tokens, times are seconds.

    An instance may spend `granted` tokens from `starts_in` after it has this answer; or after it sent the ask, if the
    whole burst was leased to it until then. It may spend these and the `kept` ones until `starts_in + lease` after it
    sent the ask. The bucket counts from a later instant, so the instance always stops first.

    Attributes:
        granted: tokens leased.
        kept: how many of the tokens reported as held the bucket still counts as this instance's: all of them, or none.
        starts_in: when the grant begins.
        lease: how long it lasts.
        retry_after: when `need` is expected to fit; 0 unless it was refused.
        level: whole tokens left in the bucket; negative while grants that begin later are unpaid.
        active_instances: limiter instances that asked lately.
        epoch: the instant of the bucket's birth (us of the server); another one means that the state was lost.
        version: how often the bucket's quota was set.
        quota: the quota that the bucket obeys, if it outranks the one that this instance asked with (default None).
        rules: the revision of the overrides in the store (default 0: there are none); -1 if the bucket cannot see it
            or was not to look.
        levels: tokens left in each bandwidth of that quota, with thousandths (default (): only `level` is known).
            They tell when a larger cost than `need` fits.

    Example:
        >>> from batchlimit import Quota
        >>> from batchlimit.stores import Ask, MemoryStore
        >>> grant = MemoryStore().take("ann", Quota.parse("10/hour"), Ask("one", seq=1, need=1, queued=1, want=5))
        >>> grant.granted, grant.level, grant.retry_after
        (5, 5, 0.0)
    """

    granted: int
    kept: int
    starts_in: float
    lease: float
    retry_after: float
    level: int
    active_instances: int
    epoch: int
    version: int
    quota: Quota | None = None
    rules: int = 0
    levels: tuple[float, ...] = ()


class Spend(NamedTuple):
    """Tokens of one bucket that a caller wants to spend at once. It has no number: a repetition is another spend.

    Attributes:
        key: which bucket; a checked key, as `batchlimit.base.key.stored` returns it.
        quota: the Quota of the key; its rates are above 0.
        cost: tokens, at least 1 and at most the burst.
        age: how long ago this quota was set (seconds, default 0): of two of one rank the bucket obeys the younger.
        fill: the share of the burst at which the bucket begins if it is not there (default 1).
        rules: which rules of the store the caller's instance knows (default 0: none), see Ask.
        revision: of the instance's own quotas (default 0).

    Example:
        >>> from batchlimit import Quota
        >>> from batchlimit.stores import MemoryStore, Spend
        >>> store, spend = MemoryStore(), Spend("ann", Quota.parse("1/hour"), 1)
        >>> [store.spend([[spend]]).groups[0][0].is_charged for _ in range(2)]
        [True, False]
    """

    key: str
    quota: Quota
    cost: int
    age: float = 0.0
    fill: float = 1.0
    rules: int = 0
    revision: int = 0


spend_of: Callable[[tuple[str, Quota, int, float, float, int, int]], Spend] = partial[Any](tuple.__new__, Spend)
"""Makes a Spend of a tuple of all of its fields, in three fifths of the time."""
Groups = Sequence[Sequence[Spend]]
"""Spends, in groups of which each is charged whole or not at all."""


class Spent(NamedTuple):
    """What became of a Spend at a bucket of which nobody leases.

    Attributes:
        is_charged: whether the tokens were there; in a group that is not charged, whether they are.
        retry_after: seconds until they are there; 0 if they were.
        epoch: the instant of the bucket's birth (us of the server).
        levels: tokens left in each bandwidth of the quota, with thousandths.

    Example:
        >>> from batchlimit import Quota
        >>> from batchlimit.stores import MemoryStore, Spend
        >>> MemoryStore().spend([[Spend("ann", Quota.parse("10/hour"), 4)]]).groups[0][0].levels
        (6.0,)
    """

    is_charged: bool
    retry_after: float
    epoch: int
    levels: tuple[float, ...]


spent_of: Callable[[tuple[bool, float, int, tuple[float, ...]]], Spent] = partial[Any](tuple.__new__, Spent)
"""Makes a Spent, as `spend_of` does a Spend."""


class SpendReply(NamedTuple):
    """What became of several groups of spends.

    Attributes:
        rules: the revision of the overrides in the store; -1 if nobody looked, or it cannot be seen from the bucket.
        groups: of each group what became of its spends; None: a bucket is not plain, and `take` has to say what is
            there. A group is charged if all of its spends are.

    Example:
        >>> from batchlimit import Quota
        >>> from batchlimit.stores import MemoryStore, Spend
        >>> MemoryStore().spend([[Spend("ann", Quota.parse("10/hour"), 1)]], look=True).rules
        0
    """

    rules: int
    groups: list[tuple[Spent, ...] | None]


class GiveBack(NamedTuple):
    """Tokens that return to a bucket. Counts are whole tokens.

    Attributes:
        instance: the name of the limiter instance.
        seq: the number of this request, as of an Ask.
        tokens: unspent tokens of a lease.
        held: tokens of the lease that stay with the instance (default 0).
        refund: spent tokens that a caller took back (default 0).

    Example:
        >>> from batchlimit import Quota
        >>> from batchlimit.stores import Ask, GiveBack, MemoryStore
        >>> store, quota = MemoryStore(), Quota.parse("10/hour")
        >>> store.take("ann", quota, Ask("one", seq=1, need=1, queued=1, want=5)).granted
        5
        >>> store.give_back("ann", quota, GiveBack("one", seq=2, tokens=4))
        4
    """

    instance: str
    seq: int
    tokens: int
    held: int = 0
    refund: int = 0


class Level(NamedTuple):
    """What a look at a bucket shows.

    Attributes:
        level: whole tokens in the bucket.
        outstanding: tokens leased out.
        active_instances: limiter instances that asked lately.
        levels: tokens in each bandwidth of the quota, with thousandths (default (): only `level` is known).

    Example:
        >>> from batchlimit import Quota
        >>> from batchlimit.stores import MemoryStore
        >>> MemoryStore().peek("ann", Quota.parse("10/hour")).level
        10
    """

    level: int
    outstanding: int
    active_instances: int
    levels: tuple[float, ...] = ()
