"""Problem details (RFC 9457) of a refusal: what its body says to a program, and to a person."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from batchlimit.integrations.headers import QUOTA_EXCEEDED, REDUCED_CAPACITY

MEDIA_TYPE = b"application/problem+json"
SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "violated-policies": {"type": "array", "items": {"type": "string"}},
    },
}
"""The JSON schema of a problem, for descriptions of an API."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A refusal, as an object of the type `application/problem+json`."""

    status: int
    type: str
    title: str
    detail: str = ""
    policies: tuple[str, ...] = ()

    def body(self) -> bytes:
        """Return the object as JSON."""
        told: dict[str, object] = {"type": self.type, "title": self.title, "status": self.status}
        if self.detail:
            told["detail"] = self.detail
        if self.policies:
            told["violated-policies"] = list(self.policies)
        return json.dumps(told, separators=(",", ":")).encode()


def quota_exceeded(policies: Sequence[str]) -> Problem:
    """Return the 429 of a rate limit."""
    title = "Request cannot be satisfied as assigned quota has been exceeded"
    return Problem(429, QUOTA_EXCEEDED, title, policies=tuple(policies))


def reduced_capacity(policies: Sequence[str] = (), detail: str = "") -> Problem:
    """Return the 503 of a store that is away, or of a concurrency limit."""
    title = "Request cannot be satisfied due to temporary server capacity constraints"
    return Problem(503, REDUCED_CAPACITY, title, detail, tuple(policies))


def unidentified(policies: Sequence[str]) -> Problem:
    """Return the 403 of a request of which nobody can say who asks."""
    detail = "A limit applies here by caller, and this request does not say who is calling."
    return Problem(403, "about:blank", "Forbidden", detail, tuple(policies))
