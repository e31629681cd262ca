"""The answer of the rules to one request, and what they learn of its response."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from batchlimit import Decision
from batchlimit.integrations.enforcement.plan import NOTHING_CHARGED, Bill, Charged, Left
from batchlimit.integrations.headers import Fields, Header, Told
from batchlimit.integrations.problem import MEDIA_TYPE, Problem
from batchlimit.rules import Request

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

    @property
    def fields(self) -> list[Header]:
        """The fields that belong to every answer, whatever its body."""
        return [each for each in self.headers if each[0] != b"content-type"]

    @property
    def kind(self) -> list[Header]:
        """The field that says what kind of body it is."""
        return [each for each in self.headers if each[0] == b"content-type"]


@dataclass(slots=True)
class Outcome:
    """What the rules say of one request.

    Attributes:
        refusal: why it is refused; None: it is admitted.
        headers: the fields for the application's response. The list is the same one as long as the request lasts.
        charges: what `settle` has to hear the response for; mostly nothing.
        bill: what was charged (default: nothing).
        left: what remains of it, by key: the fields tell of this.
        request: the request (default None: nobody looked at one).
        is_unmatched: whether no rule matched, so far.
        is_exempt: whether it is charged to nothing, and to nothing that its route asks for.
        decided: what was decided by rule, where memory alone did not; rules in shadow mode that refused are here alone.
    """

    refusal: Refusal | None = None
    headers: list[Header] = field(default_factory=list)
    charges: Sequence[Charged] = ()
    bill: Bill = NOTHING_CHARGED
    left: Left = field(default_factory=dict)
    request: Request | None = None
    is_unmatched: bool = False
    is_exempt: bool = False
    decided: Mapping[str, Decision] | None = None

    def add(self, other: "Outcome", fields: Fields) -> Refusal | None:
        """Add what a rule said that a route asked for.

        The fields tell of each rule once; those of a refusal tell of what refused, and of nothing else.
        """
        if other.charges:
            self.charges = [*self.charges, *other.charges]
        if other.refusal is not None:
            self.headers[:] = other.refusal.fields
            return other.refusal
        if other.decided:
            self.decided = {**(self.decided or {}), **other.decided}
        if not self.bill.charged:
            self.bill, self.left, self.headers[:] = other.bill, other.left, other.headers
        elif other.bill.charged:
            self.bill = Bill({each[0].name: each for each in (*self.bill.charged, *other.bill.charged)}.values())
            self.left = {**self.left, **other.left}
            self.headers[:] = fields.of(self.bill.telling(self.left))
        return None


def refuse(
    fields: Fields,
    problem: Problem,
    retry_after: float | None = None,
    short: Sequence[Told] = (),
    *,
    key: str | None = None,
    error: Exception | None = None,
) -> Refusal:
    """Return an answer that no cache stores."""
    told: list[Header] = fields.refused(short, retry_after)
    headers = [(b"content-type", MEDIA_TYPE), NO_STORE, *told]
    return Refusal(problem.status, problem.policies, key, retry_after, headers, problem.body(), error)
