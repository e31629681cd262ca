"""What a limited function's calls are charged to: a key and a cost, made of the call's own arguments."""

import functools
import inspect
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any, ParamSpec, TypeVar

from batchlimit.base.redaction import shown
from batchlimit.base.setting import is_asynchronous
from batchlimit.base.waiting import deadline

P = ParamSpec("P")
R = TypeVar("R")
Key = str | Callable[..., str]
Cost = int | Callable[..., int]


_WITH_A_KEY = "a decorator is written with a key, as in @limiter.limit('search')"


class Template:
    """A key whose fields name parameters ("{user}", "{request.client.host}"), and a cost; either may be a function."""

    __slots__ = ("_cost", "_fields", "_key")

    def __init__(self, key: Key, cost: Cost) -> None:
        if inspect.iscoroutinefunction(key) or _is_being_decorated(key):
            raise TypeError(f"{shown(key)} was taken for the key: {_WITH_A_KEY}")
        if not isinstance(key, str) and not callable(key):
            raise TypeError(f"a key must be a str or a function of the call's arguments, not {shown(key)}")
        if isinstance(cost, bool) or (not isinstance(cost, int) and not callable(cost)):
            raise TypeError(
                f"cost must be a whole number of tokens or a function of the call's arguments, not {shown(cost)}"
            )
        if isinstance(cost, int) and cost < 0:
            raise ValueError(f"cost must be at least 0 tokens, not {shown(cost)}")
        self._key, self._cost = key, cost
        self._fields = _fields(key) if isinstance(key, str) else []

    def alone(self) -> tuple[str, int]:
        """Return key and cost where there is no call: of a block. ValueError if they need one."""
        if self._fields or not isinstance(self._key, str) or not isinstance(self._cost, int):
            raise ValueError(
                f"{shown(self._key)} with cost {shown(self._cost)} needs a function's arguments: use it as a decorator"
            )
        return self._key.format(), self._cost

    def of(self, function: Callable[..., Any]) -> Callable[..., tuple[str, int]]:
        """Return what makes key and cost of a function's arguments; ValueError now for a field that is no parameter."""
        key, cost = self._key, self._cost
        text = self._text(function) if isinstance(key, str) else key

        def charged(*args: Any, **kwargs: Any) -> tuple[str, int]:
            return text(*args, **kwargs), cost if isinstance(cost, int) else cost(*args, **kwargs)

        return charged

    def _text(self, function: Callable[..., Any]) -> Callable[..., str]:
        assert isinstance(self._key, str)
        if not self._fields:
            constant = self._key.format()
            return lambda *_args, **_kwargs: constant
        signature, render = inspect.signature(function), self._key.format
        kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
        extra = next((name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD), None)  # **kwargs
        for field in self._fields:
            if field not in signature.parameters and extra is None:
                raise ValueError(f"{shown(self._key)} names {shown(field)}, which is no parameter of {shown(function)}")

        def filled(*args: Any, **kwargs: Any) -> str:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            try:
                return render(**{**bound.arguments.get(extra or "", {}), **bound.arguments})
            except KeyError as missing:
                raise TypeError(f"missing an argument that {shown(self._key)} names: {missing}") from None

        return filled


class TemplateLimit:
    """What `limit` returns, in either API. An admitted call stays charged, however its block ends."""

    __slots__ = ("_limiter", "_template", "_timeout")

    def __init__(self, limiter: Any, template: Template, timeout: float | None) -> None:
        deadline(timeout, 0.0)  # a wrong one raises here, and not at each call
        self._limiter, self._template, self._timeout = limiter, template, timeout

    def __repr__(self) -> str:
        return f"<{type(self).__name__} by {self._template!r}>"

    def _awaiting(self, function: Callable[P, Any], acquire: Callable[[str, int], Any]) -> Callable[P, Any]:
        """Return a coroutine function that awaits what `acquire` returns, and then this one."""
        charged = self._template.of(function)

        @functools.wraps(function)
        async def limited(*args: P.args, **kwargs: P.kwargs) -> Any:
            await acquire(*charged(*args, **kwargs))
            return await function(*args, **kwargs)

        return limited


def _is_being_decorated(function: object) -> bool:
    """Whether a function has no name yet where `limit` is called: it was just made there, as below a decorator."""
    frame = inspect.currentframe()
    for _ in range(3):  # Template, `limit`, and its caller
        frame = frame and frame.f_back
    if frame is None or not inspect.isfunction(function) or function.__name__ == "<lambda>":
        return False
    return function.__code__ in frame.f_code.co_consts and not any(
        each is function for each in (*frame.f_locals.values(), *frame.f_globals.values())
    )


def the_function(given: tuple[Callable[P, R], ...], named: Mapping[str, object]) -> Callable[P, R]:
    """Return the function that a limit decorates; TypeError for the arguments of one that was taken for the key."""
    if len(given) == 1 and isinstance(given[0], classmethod):
        raise TypeError("@classmethod stands above a limit, and not below it")
    if len(given) != 1 or named or not callable(given[0]):
        raise TypeError(f"a limit is called with the function that it limits, and nothing else: {_WITH_A_KEY}")
    return given[0]


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether its calls are awaited; TypeError for an async generator: nobody could say when it was admitted."""
    if inspect.isasyncgenfunction(function):
        raise TypeError(f"an asynchronous generator cannot be limited: {shown(function)}; limit what it awaits")
    return is_asynchronous(function)


def _fields(key: str) -> list[str]:
    """Return the names that a text is to be filled with."""
    if not key:
        raise ValueError("a key must not be empty: ''")
    try:
        parsed = [(field, form) for _, field, form, _ in Formatter().parse(key) if field is not None]
    except ValueError as error:
        raise ValueError(f"{shown(key)} cannot be filled: {error}; write {{{{ and }}}} for braces") from None
    if any("{" in (form or "") for _, form in parsed):
        raise ValueError(f"a field of {shown(key)} must not have fields within")
    found = [field for field, _ in parsed]
    names = [field.replace("[", ".").partition(".")[0] for field in found]
    for name in names:
        if not name.isidentifier():
            raise ValueError(f"a field of {shown(key)} must name a parameter; write {{{{ and }}}} for braces")
    return names
