"""Which thread sends the request in flight: a signal handler must not wait for the thread that it interrupted."""

from threading import get_ident


class Sender:
    """The thread that sends one request of a key; NO_SENDER while none is in flight."""

    __slots__ = ("_request", "_thread")

    def __init__(self, request: object, thread: int | None = None) -> None:
        """`thread` sends it (default None: this one)."""
        self._request = request
        self._thread = 0 if request is None else thread or get_ident()

    def __repr__(self) -> str:
        return f"<Sender: thread {self._thread} sends {self._request!r}>"

    def after(self, in_flight: object) -> "Sender":
        """Return the sender of what is in flight now: this thread, if that has just begun. Requires the lock."""
        if in_flight is self._request:
            return self
        return NO_SENDER if in_flight is None else Sender(in_flight)

    def hand_over(self) -> None:
        """Let another thread send the request."""
        self._thread = 0

    def sends(self, in_flight: object) -> bool:
        """Whether this very thread sends it: then a handler that interrupted the sending would wait for ever."""
        return self._thread == get_ident() and in_flight is self._request is not None


NO_SENDER = Sender(None)
