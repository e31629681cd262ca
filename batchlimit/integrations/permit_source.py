"""Where requests get their permits: of a limiter of one process by partition, of a keyed or a shared one by key."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from batchlimit import AsyncConcurrencyLimiter, BatchLimitError, ConcurrencyLimited, ConcurrencyLimiter
from batchlimit.admission.permit import check_kind
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, KeyedConcurrencyLimiter
from batchlimit.events import log_event
from batchlimit.shared import AsyncSharedConcurrencyLimiter, SharedConcurrencyLimiter

Keyed = KeyedConcurrencyLimiter | AsyncKeyedConcurrencyLimiter
Shared = SharedConcurrencyLimiter | AsyncSharedConcurrencyLimiter
AnyLimiter = ConcurrencyLimiter | AsyncConcurrencyLimiter | Keyed | Shared
KeyOf = Callable[[Any], str | Iterable[str]]
"""Returns the key of a request, or several keys, of which it needs a place at each."""


class PermitSource:
    """Acquires the permits of requests, for faces of both APIs; TypeError: the options do not go with the limiter.

    A request is refused (BatchLimitError) also where its key cannot be made.
    """

    def __init__(
        self, kinds: tuple[type, ...], limiter: AnyLimiter, partition: Callable[[Any], str], key: KeyOf | None = None
    ) -> None:
        check_kind("limiter", limiter, kinds)
        has_keys, self.is_shared = isinstance(limiter, Keyed | Shared), isinstance(limiter, Shared)
        if has_keys and key is None:
            raise TypeError(f"a {type(limiter).__name__} needs key=, a function that returns the key of a request")
        if key is not None and not has_keys:
            raise TypeError(f"key= is for a limiter by key, like KeyedConcurrencyLimiter, not {limiter!r}")
        self._limiter, self._partition, self._key = limiter, partition, key
        self.is_keyed = key is not None

    def __repr__(self) -> str:
        return repr(self._limiter)

    def acquire(self, request: object, **options: Any) -> Any:
        """Return the permit of a request; that of an asyncio limiter is to be awaited."""
        if self._key is None:
            return self._limiter.acquire(self._partition(request), **options)
        return self._by_key(request, self._limiter.acquire, options)

    def acquire_later(self, back: tuple[Any, Any], request: object, **options: Any) -> Any:
        """Return the permit of a request, or None: then one of `back` is called, with a permit or a refusal."""
        assert isinstance(self._limiter, ConcurrencyLimiter | KeyedConcurrencyLimiter)
        acquire = partial(self._limiter.acquire_later, *back)
        if self._key is None:
            return acquire(self._partition(request), **options)
        return self._by_key(request, acquire, options)

    def _by_key(self, request: object, acquire: Callable[..., Any], options: dict[str, Any]) -> Any:
        assert self._key is not None
        if self.is_shared:
            options.pop("operation", None)
        else:
            options["partition"] = self._partition(request)
        try:
            keys = self._key(request)
            if isinstance(keys, str):
                return acquire(keys, **options)
            return self._several(keys, options if acquire == self._limiter.acquire else options | {"timeout": 0})
        except BatchLimitError:
            raise
        except Exception as error:
            message = "a request is refused, for its key could not be made: %s"
            log_event("web.no_permit_key", message, error, error=error)
            raise ConcurrencyLimited(
                "no_key", None, limit=0, in_flight=0, detail="the key could not be made"
            ) from error

    def _several(self, keys: Iterable[str], options: dict[str, Any]) -> Any:
        if not isinstance(self._limiter, Keyed):
            raise TypeError("a request has one key at a shared limiter: return a str")
        return self._limiter.acquire_all(keys, **options)
