"""Every public name of the concurrency limiter says what it does, and its example runs."""

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any, Unpack, get_args, get_origin, get_type_hints

import pytest

import batchlimit
from batchlimit import (
    AsyncConcurrencyLimiter,
    ConcurrencyLimited,
    ConcurrencyLimiter,
    Partitions,
    Queue,
    concurrency,
    laws,
    watchers,
)
from batchlimit.concurrency import AsyncPermit, AsyncPermits, Permit, Permits
from batchlimit.integrations import grpc as interceptors
from tests.test_docstrings import described

OF_BATCHLIMIT = [AsyncConcurrencyLimiter, ConcurrencyLimited, ConcurrencyLimiter, Partitions, Queue]
NAMES = {each.__name__: each for each in OF_BATCHLIMIT} | {
    f"{package.__name__}.{name}": found
    for package in (concurrency, laws, watchers, interceptors)
    for name in package.__all__
    if inspect.isclass(found := getattr(package, name)) or inspect.isfunction(found)
}
PROMISED = {"limit", "update", "calibrate", "add", "take", "capacity", "name", "poll"}
"""Members of the protocols Law, Calibrated, Window and Watcher: the sections stand there, once."""
PROTOCOLS = [concurrency.Law, concurrency.Calibrated, laws.Window, watchers.Watcher]


def members(found: type) -> Iterator[tuple[str, Any]]:
    """Every public method and property of a class, but those of its foreign bases."""
    for name in dir(found):
        home = next((base for base in found.__mro__ if name in vars(base)), object)
        foreign = [base for base in found.__mro__ if not base.__module__.startswith("batchlimit.")]
        if any(name in vars(base) for base in foreign):
            continue  # that base has said it
        if not name.startswith("_") and home.__module__.startswith("batchlimit."):
            member = inspect.getattr_static(home, name)
            if inspect.isfunction(member) or isinstance(member, property):
                yield name, member


@pytest.mark.parametrize("path", NAMES)
def test_a_public_name_has_a_docstring_with_an_example(path: str) -> None:
    assert ">>> " in text_of(NAMES[path])


@pytest.mark.parametrize("path", NAMES)
def test_a_docstring_describes_every_argument_and_its_default(path: str) -> None:
    for name, parameter in parameters(NAMES[path]).items():
        described = line_of(text_of(NAMES[path]), name)
        assert parameter.default is parameter.empty or "default" in described, name


@pytest.mark.parametrize("found", [found for found in NAMES.values() if inspect.isclass(found)])
def test_a_method_says_what_it_takes_and_returns(found: type) -> None:
    for name, member in members(found):
        text = text_of(member)
        if isinstance(member, property) or (name in PROMISED and found not in PROTOCOLS):
            continue
        for argument, parameter in parameters(member).items():
            described = line_of(text, argument)
            assert parameter.default is parameter.empty or "default" in described, (name, argument)
        returned = inspect.signature(member).return_annotation
        assert "Returns:" in text or returned in (None, "None", inspect.Signature.empty), name


def parameters(found: Any) -> dict[str, inspect.Parameter]:
    """What a caller may give: fields for a tuple or a dataclass, nothing for what the library alone makes."""
    if (
        found in PROTOCOLS
        or found in (Permit, AsyncPermit, Permits, AsyncPermits)
        or (inspect.isclass(found) and issubclass(found, Exception))
    ):
        return {}
    if inspect.isclass(found) and found.__module__.endswith("concurrency.law") and not issubclass(found, tuple):
        return {}
    given = inspect.signature(found).parameters
    passed_on = {name: each for each in given.values() for name, each in options(each).items()}
    return {name: each for name, each in given.items() if name != "self" and not options(each)} | passed_on


def options(given: inspect.Parameter) -> dict[str, inspect.Parameter]:
    """The arguments that a class passes on, by the TypedDict that names them; all have defaults."""
    if given.kind is not given.VAR_KEYWORD or get_origin(given.annotation) is not Unpack:
        return {}
    names = get_type_hints(get_args(given.annotation)[0])
    return {name: inspect.Parameter(name, given.KEYWORD_ONLY, default=...) for name in names}


def test_fields_of_results_are_described() -> None:
    for found in NAMES.values():
        names = [each.name for each in dataclasses.fields(found)] if dataclasses.is_dataclass(found) else []
        for name in [*names, *getattr(found, "_fields", ())]:
            assert line_of(text_of(found), name)


@pytest.mark.parametrize(
    ("permit", "names"),
    [
        (Permit, "answered check drop ignore operation priority shed start_ns success"),
        (AsyncPermit, "answered drop ignore operation priority shed start_ns success"),
    ],
)
def test_a_permit_shows_its_contract_alone(permit: type, names: str) -> None:
    assert [name for name in dir(permit) if not name.startswith("_")] == names.split()


@pytest.mark.parametrize("permits", [Permits, AsyncPermits])
def test_permits_say_that_all_of_them_are_completed(permits: type) -> None:
    for name in ("success", "drop", "ignore", "answered"):
        assert "Complete all permits" in getattr(permits, name).__doc__, name


def test_the_top_of_the_package_tells_the_states_of_a_permit() -> None:
    from batchlimit.concurrency.permit import State

    assert all(f"    {state.name} " in text_of(concurrency) for state in State)


def line_of(text: str, name: str) -> str:
    """The description of an argument or attribute, of several together too, with the lines that continue it."""
    found = described(text, name)
    assert found, f"nothing is said of {name}"
    return found


def test_the_names_above_are_those_of_the_package() -> None:
    assert all(each.__name__ in batchlimit.__all__ for each in OF_BATCHLIMIT)


def text_of(found: Any) -> str:
    text = inspect.cleandoc(found.__doc__ or "")
    assert text, found
    return text
