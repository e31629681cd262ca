"""What Flask and Quart raise for a request that a rule refuses: an HTTP error, which handlers may answer."""

from collections.abc import Iterable
from typing import Any

from werkzeug.exceptions import Forbidden, HTTPException, ServiceUnavailable, TooManyRequests

from batchlimit.integrations.enforcement import Refusal
from batchlimit.integrations.headers import Header, texts


class Rejected(HTTPException):
    """A rule refuses a request. Without a handler it is answered with problem details.

    A handler for this class, for its status or for HTTPException answers instead. The fields of the refusal are added
    to its answer.

    Args:
        refusal: why, and what is answered.
        fields: header fields that nobody else adds to the answer (default none).

    Attributes:
        refusal: the Refusal: `status`, `rules`, `key`, `retry_after`, `error`.

    Example:
        >>> from batchlimit.integrations.enforcement import Refusal
        >>> rejected(Refusal(429, ("login",), None, 1.0, [], b"")).code
        429
    """

    def __init__(self, refusal: Refusal, fields: Iterable[Header] = ()) -> None:
        super().__init__(f"refused by {', '.join(refusal.rules)}" if refusal.rules else None)
        self.refusal, self._fields = refusal, [*refusal.kind, *fields]

    def get_headers(self, *_: Any) -> list[tuple[str, str]]:
        """Return the type of the body; the extension adds the other fields."""
        return texts(self._fields)

    def get_body(self, *_: Any) -> str:
        """Return problem details as JSON."""
        return self.refusal.body.decode()


# Flask finds handlers by the status of the class.


class _TooManyRequests(Rejected, TooManyRequests):
    """A rule has no token."""


class _ServiceUnavailable(Rejected, ServiceUnavailable):
    """A rule cannot be asked."""


class _Forbidden(Rejected, Forbidden):
    """Nobody can say who asks."""


_CLASSES: dict[int, type[Rejected]] = {429: _TooManyRequests, 503: _ServiceUnavailable, 403: _Forbidden}


def rejected(refusal: Refusal, fields: Iterable[Header] = ()) -> Rejected:
    """Return the exception of a refusal, of the class of its status."""
    return _CLASSES[refusal.status](refusal, fields)
