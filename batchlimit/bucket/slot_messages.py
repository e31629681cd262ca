"""What a limiter instance and the store say to each other about the slots of one limit."""

from typing import NamedTuple


class SlotAsk(NamedTuple):
    """What an instance tells and asks; each time all of it, so that a lost message changes nothing.

    Attributes:
        instance: Its ID, a dot, and a number that is new after each lease that it lost.
        limit: How many slots there are, as this instance was told.
        lease: For how long it asks (us).
        weight: Its part of the slots while instances compete.
        returned: Slots that it gave back so far.
        held: Slots that it knows to hold; the store may have lost some of them.
        target: Slots that it has use for now.
        waiting: For how many of those it waits if it does not get them.
        extra: Slots that it has use for soon.
        idle: Slots that it holds for no permit.
    """

    instance: str
    limit: int
    lease: int
    weight: int = 1
    returned: int = 0
    held: int = 0
    target: int = 0
    waiting: int = 0
    extra: int = 0
    idle: int = 0


class SlotReply(NamedTuple):
    """What the store answers.

    Attributes:
        granted: Slots that the instance got so far.
        token: Larger than that of every lease which was over before.
        keep: Slots that it may hold while others wait; -1: nobody else waits.
        fresh: The store did not know of all its slots: `granted` may be lower than before.
        lent: Slots that all instances hold.
        limit: How many slots there are: the least that an instance names.
        instances: How many instances hold slots or wait.
    """

    granted: int
    token: int
    keep: int
    fresh: bool
    lent: int
    limit: int
    instances: int


class SlotPush(NamedTuple):
    """What the store tells an instance that did not ask; see SlotReply."""

    instance: str
    granted: int
    token: int
    keep: int
