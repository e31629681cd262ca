"""The same routes in every framework, by `View`: `made` of a module puts them behind rules in its manner."""

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
    """A route with parameters like "{id}" or "{status:int}", and what it asks for by its key; `answer` None: it echoes.

    It is "included" in a router, controller or blueprint that asks for the key, or "mounted", at that prefix;
    `in_thread` it is a function without `async`, where the framework has both.
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
