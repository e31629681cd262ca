"""Calls of a threaded server that wait for their place without a worker thread, or are refused without one."""

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import lru_cache, partial
from threading import Event, Lock
from typing import Any

import grpc

from batchlimit import BatchLimitError, LimiterClosed
from batchlimit.concurrency import Permit
from batchlimit.integrations.grpc.answer import CallRefusal, refused_by_limiter
from batchlimit.integrations.grpc.serving import Handler, function_of, streaming

_CLOSED = refused_by_limiter(LimiterClosed("the server stops"))


class QueuedCall:
    """What grpcio wants to run, and whether it may; once both are known, it runs. Meanwhile no thread is blocked."""

    def __init__(self, workers: Executor) -> None:
        self._workers = workers
        self._lock = Lock()  # held to touch the job and the verdict
        self._known = Event()
        self._job: Callable[[], None] | None = None
        self._is_unwanted = False
        self._permit: Permit | None = None
        self._refusal: CallRefusal | None = None

    def admitted(self, permit: Permit) -> None:
        """Run the call, or do so as soon as it comes."""
        with self._lock:
            self._permit = permit
            if self._is_unwanted:
                permit.ignore()
            job = self._decide()
        if job is not None:
            self._start(job)

    def refused(self, error: BatchLimitError) -> None:
        """Refuse the call, or do so as soon as it comes; in a background thread."""
        with self._lock:
            self._refusal = refused_by_limiter(error)
            job = self._decide()
        if job is not None:
            job()

    def forget(self) -> None:
        """Complete the permit when it comes: there is no such method."""
        with self._lock:
            self._is_unwanted = True
            if self._permit is not None:
                self._permit.ignore()

    def permit_of(self, context: Any) -> Permit:
        """Return the permit; end the call if it got none. In the thread that runs the call."""
        self._known.wait()
        if self._refusal is not None or self._permit is None:
            (self._refusal or _CLOSED).end(context)
            raise RuntimeError("abort returned")  # grpcio's raises
        return self._permit

    def handler(self, call: Handler) -> Handler:
        """Return a handler, of one whose requests stream, that grpcio gives to this call, and not to its workers."""
        run = function_of(call)

        def parked(requests: Any, context: Any) -> Any:
            return run(requests, context)

        parked.experimental_thread_pool = OwnPool(self.submit)  # type: ignore[attr-defined]
        return streaming(call, parked, call.request_deserializer)

    def submit(self, *job_of_grpcio: Any) -> "Future[Any]":
        """Run a job, which is a function and its arguments, as soon as there is a place; for grpcio."""
        done: Future[Any] = Future()
        job = partial(_complete, done, *job_of_grpcio)
        with self._lock:
            if not self._known.is_set():
                self._job = job
                return done
        if self._refusal is None:
            self._start(job)
        else:
            job()
        return done

    def _decide(self) -> Callable[[], None] | None:
        self._known.set()
        job, self._job = self._job, None
        return job

    def _start(self, job: Callable[[], None]) -> None:
        try:
            self._workers.submit(job)
        except RuntimeError:  # the pool was shut down: the server stops
            if self._permit is not None:
                self._permit.ignore()
            self._refusal = _CLOSED
            job()


class OwnPool(ThreadPoolExecutor):
    """The pool of one handler, without threads: grpcio submits a call to the ThreadPoolExecutor of its handler."""

    def __init__(self, submit: Callable[..., "Future[Any]"]) -> None:
        self.submit = submit  # type: ignore[method-assign]


def _complete(done: "Future[Any]", do: Callable[..., Any], *arguments: Any) -> None:
    try:
        do(*arguments)
    finally:
        done.set_result(None)


@lru_cache
def refusing(answer: CallRefusal) -> Handler:
    """Return a handler that refuses, for any kind of method: as its requests stream it waits for none."""

    def refuse(requests: object, context: grpc.ServicerContext) -> None:
        answer.tell(context)

    refuse.experimental_thread_pool = _AT_ONCE  # type: ignore[attr-defined]
    return grpc.stream_unary_rpc_method_handler(refuse)


def _at_once(do: Callable[..., Any], *arguments: Any) -> "Future[Any]":
    """Refuse a call in the very thread that asked the interceptor: that blocks nowhere and takes microseconds."""
    do(*arguments)
    return _DONE


_DONE: "Future[Any]" = Future()  # one for all refusals: a Future of its own takes longer than the rest of a refusal
_DONE.set_result(None)
_AT_ONCE = OwnPool(_at_once)
