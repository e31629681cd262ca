"""The permits of outgoing requests: each is held until its response was read or closed."""

import sys
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from inspect import ismethod
from typing import Any

from batchlimit import AsyncRateLimiter, Queue
from batchlimit.admission import Admission, AsyncAdmission
from batchlimit.admission.permit import LimiterByKey, give_back
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, Keyed, KeyedConcurrencyLimiter, Law, Outcome
from batchlimit.shared.permit import BaseSharedPermit

Concurrency = int | Callable[[], Law] | LimiterByKey
"""How many requests of a key may be under way at once."""
_LONGEST_QUEUE = 10_000


def admission(limiter: Any, given: Concurrency) -> Admission[Any] | AsyncAdmission[Any]:
    """Return what gives a request its tokens and its permit; TypeError, ValueError: `given` limits nothing."""
    is_async = isinstance(limiter, AsyncRateLimiter)
    concurrency: Any = given
    if not isinstance(given, LimiterByKey):
        limits = {"*": Keyed(given, queue=Queue(_LONGEST_QUEUE, max_wait=None))}
        concurrency = AsyncKeyedConcurrencyLimiter(limits) if is_async else KeyedConcurrencyLimiter(limits)
    return AsyncAdmission(limiter, concurrency) if is_async else Admission(limiter, concurrency)


@dataclass(slots=True, eq=False)
class OutgoingPermit:
    """The permit of a request that is sent."""

    permit: Any
    outcome: Outcome = Outcome.IGNORED  # what its response tells about the load

    def end(self, error: BaseException | None = None) -> None:
        """Give the permit back: nothing of the response will be read, or an error ended it. The first time counts."""
        permit = self.permit
        if error is None or isinstance(permit, BaseSharedPermit):
            give_back(permit, self.outcome)
        else:
            permit.__exit__(type(error), error, None)

    @contextmanager
    def read(self) -> Iterator[None]:
        """End with whatever error ends the reading of the response, which is the block."""
        try:
            yield
        except GeneratorExit:  # who read it goes away, and closes it
            raise
        except BaseException as error:
            self.end(error)
            raise

    def hold_stream(self, response: Any, library: Any) -> None:
        """Last until a response of httpx or httpx2 is closed."""
        if response.is_closed:  # one that was made from its whole content, as by a MockTransport
            self.end()
        else:
            response.stream = _stream_of(library)(response.stream, self)

    def hold_connection(self, raw: Any, failure: type[Exception]) -> None:
        """Last until the connection of a response of urllib3 is free; `failure` is what reading it raises."""
        if getattr(raw, "connection", None) is None:  # that of a test may have none
            self.end()
            return
        before, kept = sys.exception(), weakref.ref(raw)  # a response that nobody holds is closed at once

        def ending(method: Callable[[], None]) -> Callable[[], None]:
            found: Any = weakref.WeakMethod(method) if ismethod(method) else lambda: method  # of another limit

            def end() -> None:
                try:
                    found()()
                finally:
                    if (held := kept()) is not None:
                        vars(held).pop("close", None), vars(held).pop("release_conn", None)
                    error = None if (now := sys.exception()) is before else now
                    lost = ConnectionError() if _is_cut_off(error) else None
                    self.end(error if isinstance(error, failure) else lost)

            return end

        raw.close, raw.release_conn = ending(raw.close), ending(raw.release_conn)


def _is_cut_off(error: BaseException | None) -> bool:
    """Whether it is urllib3's ValueError of a chunk that was cut off, and not one of who reads the body."""
    trace = None if type(error) is not ValueError else error.__traceback__
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("urllib3.")


class Stream:
    """A body that a thread or a task reads. Its request is under way until it is closed, or an error ends it."""

    def __init__(self, stream: Any, permit: OutgoingPermit) -> None:
        self._stream, self._permit = stream, permit

    def __iter__(self) -> Iterator[bytes]:
        with self._permit.read():
            yield from self._stream

    def close(self) -> None:
        """Close the body below."""
        try:
            self._stream.close()
        finally:
            self._permit.end()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with self._permit.read():
            async for part in self._stream:
                yield part

    async def aclose(self) -> None:
        """Close the body below."""
        try:
            await self._stream.aclose()
        finally:
            self._permit.end()


_stream_of: Any = cache(lambda library: type("Stream", (Stream, library.SyncByteStream, library.AsyncByteStream), {}))
