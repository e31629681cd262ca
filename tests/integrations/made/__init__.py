"""The same routes in every framework: `View` says what a route answers and asks for, each module makes an application.

`made` of a module puts it behind the rules in the manner of its framework, and returns it with its statistics.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Literal, NamedTuple

Made = tuple[Any, Callable[[], Any]]
"""An application, and what returns its statistics."""
PARTS = [b"0" * 10, b"1" * 10, b"2" * 10]


class Said(NamedTuple):
    """What a view answers: a text, or a stream of PARTS, which perhaps breaks, or has no end; `later` comes a task."""

    text: str = ""
    status: int = 200
    fields: dict[str, str] = {}  # noqa: RUF012
    stream: Literal["", "parts", "broken", "endless"] = ""
    later: bool = False

    def parts(self) -> Iterator[bytes]:
        """The stream, in a thread."""
        yield from iter(lambda: b"x" * 65536, b"") if self.stream == "endless" else PARTS
        self._break()

    async def async_parts(self) -> AsyncIterator[bytes]:
        """The stream, on a loop."""
        for part in iter(lambda: b"x" * 1000, b"") if self.stream == "endless" else PARTS:
            yield part
            await asyncio.sleep(0)  # so that the server learns that the client left
        self._break()

    def _break(self) -> None:
        if self.stream == "broken":
            raise ZeroDivisionError


class View(NamedTuple):
    """A route, and what it asks for.

    Attributes:
        path: where it is; "{id}" and "{status:int}" are parameters.
        answer: returns what it answers to a request of the framework, and its parameters; None: it echoes websockets.
        key, charge, identify: what it asks for (default None: nothing).
        within: "included" in a router, a controller or a blueprint that asks for the key; or "mounted", at that prefix.
        methods: those of requests.
        in_thread: whether it is a function without `async`, where the framework has both.
    """

    path: str
    answer: Callable[..., Said] | None
    key: str | None = None
    charge: Any = None
    identify: Callable[[Any], dict[str, str]] | None = None
    within: Literal["", "included", "mounted"] = ""
    methods: tuple[str, ...] = ("GET",)
    in_thread: bool = False

    def written(self, parameter: str = r"<\2:\1>", plain: str = r"<\1>") -> str:
        """The path as a framework writes it: a parameter of a kind, and one without."""
        return re.sub(r"\{(\w+)\}", plain, re.sub(r"\{(\w+):(\w+)\}", parameter, self.path))


def says(text: str, status: int = 200, **more: Any) -> Callable[..., Said]:
    """Return what answers this."""
    said = Said(text, status, **more)
    return lambda request, **parameters: said


def fails(request: Any, **parameters: Any) -> Said:
    """Raise, as a view with a mistake."""
    raise ZeroDivisionError


async def done() -> None:
    """Do a task in the background."""


def user_of(scope: Any) -> dict[str, str]:
    """Say who asks, by the scope of a request."""
    return {"user": dict(scope["headers"]).get(b"x-user", b"nobody").decode("latin-1")}


def user_named(request: Any) -> dict[str, str]:
    """Say who asks, by a request of a framework."""
    return {"user": request.headers.get("x-user", "nobody")}
