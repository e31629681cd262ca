"""Calls of a threaded server that wait for their place without a worker thread, or are refused without one."""

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import grpc

from batchlimit import LimiterClosed
from batchlimit.integrations.grpc.answer import CallRefusal
from batchlimit.integrations.grpc.serving import Handler, function_of, streaming


class QueuedCall:
    """What grpcio wants to run, and whether it may; once both are known, it runs. Meanwhile no thread is blocked."""

    def __init__(self, workers: Executor) -> None:
        self._workers, self._verdict = workers, Future[Any]()
        self.back = self._verdict.set_result, self._verdict.set_exception  # for a permit, and for a refusal

    def forget(self) -> None:
        """Give the permit back when it comes: there is no such method."""
        self._verdict.add_done_callback(lambda verdict: None if verdict.exception() else verdict.result().ignore())

    def permit(self) -> Any:
        """Return the permit, or raise the refusal. In the thread that runs the call."""
        return self._verdict.result()

    def handler(self, call: Handler) -> Handler:
        """Return a handler, of one whose requests stream, that grpcio gives to this call, and not to its workers."""
        run = function_of(call)

        def parked(requests: Any, context: Any) -> Any:
            return run(requests, context)

        parked.experimental_thread_pool = OwnPool(self._submit)  # type: ignore[attr-defined]
        return streaming(call, parked, call.request_deserializer)

    def _submit(self, do: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        """Run a job of grpcio as soon as there is a place."""
        done: Future[Any] = Future()

        def job() -> None:
            try:
                do(*arguments)
            finally:
                done.set_result(None)

        self._verdict.add_done_callback(lambda _: self._start(job))
        return done

    def _start(self, job: Callable[[], None]) -> None:
        if self._verdict.exception() is not None:  # to refuse takes no worker
            job()
            return
        try:
            self._workers.submit(job)
        except Exception:  # noqa: BLE001  the pool was shut down, for the server stops; or it is full
            self._verdict.result().ignore()
            self._verdict = Future()
            self._verdict.set_exception(LimiterClosed("no worker takes this call"))
            job()


class OwnPool(ThreadPoolExecutor):
    """The pool of one handler, without threads: grpcio submits a call to the ThreadPoolExecutor of its handler."""

    def __init__(self, submit: Callable[..., "Future[Any]"]) -> None:
        self.submit = submit  # type: ignore[method-assign]


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
