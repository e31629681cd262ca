"""Every public name of the rate limiter says what it takes, returns and raises, and its example runs."""

import dataclasses
import gc
import inspect
import math
import pkgutil
import re
import warnings
from ast import literal_eval
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import batchlimit
from batchlimit import rules
from tests.examples import run_examples

ROOT = Path(batchlimit.__path__[0])
PACKAGES = sorted({each.parent.name for each in ROOT.glob("*/__init__.py")} - {"telemetry", "integrations"})
"""Examples of telemetry print figures; those of integrations run in tests/integrations."""
FACE = [
    "batchlimit",
    *(f"batchlimit.{module}" for module in ("admission", "batching", "errors", "rules", "shared", "stores")),
    *(f"batchlimit.{module}" for module in ("testing", "types")),
]
ELSEWHERE = "batchlimit.concurrency."
"""Its names are looked at in tests/concurrency."""
PROMISED = {"AsyncStore", "Remote", "AsyncRemote", "RedisStore", "AsyncRedisStore", "MemoryStore"}
PROMISED |= {"FaultStore", "AsyncFaultStore", "FakeLimiter", "AsyncFakeLimiter", "KeyHandle", "AsyncKeyHandle"}
"""The methods of Store, and what Remote adds: the sections stand at Store, once. Those of RateLimiter stand there."""
WITHOUT_EXAMPLE = {"BucketUnavailable", "WatcherUnavailable", "Remote", "AsyncRemote"}
"""Nobody makes them, or the example of their base is theirs."""

MADE_BY_USERS = [
    "AsyncRateLimiter",
    "AsyncRedisStore",
    "FailurePolicy",
    "FixedBatch",
    "FractionBatch",
    "GrowingBatch",
    "MemoryStore",
    "Quota",
    "RateLimiter",
    "RedisStore",
    "TimeBatch",
]

_DEFAULT = re.compile(r"\bdefault (-?\d[\d,]*(?:\.\d+)?|inf|None|True|False)\b")


def modules(name: str) -> Iterator[ModuleType]:
    """A module, or all modules of a package."""
    yield (found := import_module(f"batchlimit.{name}"))
    for each in pkgutil.walk_packages(getattr(found, "__path__", []), f"{found.__name__}."):
        yield import_module(each.name)


def classes() -> Iterator[tuple[str, type]]:
    for module in map(import_module, FACE):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found) and not found.__module__.startswith(ELSEWHERE):
                yield name, found


def members(found: type) -> dict[str, Any]:
    """What a class holds, and what it has from bases of our own."""
    ours = [base for base in reversed(found.__mro__) if base.__module__.startswith("batchlimit.")]
    return {name: member for base in ours for name, member in vars(base).items()}


CLASSES = dict(classes())


def methods(found: type) -> dict[str, Any]:
    """The public methods of a class."""
    return {
        name: inspect.unwrap(getattr(found, name))
        for name, member in members(found).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, classmethod))
    }


@pytest.mark.parametrize("name", ["errors", *PACKAGES])
def test_the_examples_of_a_package_run(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an example forgets to await, and says what happens
        gc.disable()  # or what it forgot ends during some other example
        try:
            failed = {module.__name__: run_examples(module).failed for module in modules(name)}
        finally:
            gc.collect()
            gc.enable()
    assert not any(failed.values()), failed


@pytest.mark.parametrize("name", CLASSES)
def test_a_public_class_has_a_docstring_with_an_example(name: str) -> None:
    assert name in WITHOUT_EXAMPLE or ">>> " in text_of(CLASSES[name])


@pytest.mark.parametrize("name", CLASSES)
def test_a_public_class_describes_what_it_is_made_of(name: str) -> None:
    found = CLASSES[name]
    fields = [each.name for each in dataclasses.fields(found)] if dataclasses.is_dataclass(found) else []
    for field in [*fields, *getattr(found, "_fields", ())]:
        if field.startswith("_"):  # it is kept for the class alone
            continue
        assert described(text_of(found), field), field
    for argument, parameter in arguments_of_users(found).items():
        description = described(text_of(found) + text_of(vars(found).get("__init__", found)), argument)
        assert description, argument
        assert parameter.default is parameter.empty or "default" in description, argument


@pytest.mark.parametrize("name", CLASSES)
def test_a_public_method_says_what_it_takes_and_returns(name: str) -> None:
    for method, found in methods(CLASSES[name]).items():
        text, signature = text_of(found), inspect.signature(found)
        if name in PROMISED and method != "from_url":
            continue
        for argument in signature.parameters.keys() - {"self", "cls"}:
            assert described(text, argument), (method, argument)
        assert "Returns:" in text or signature.return_annotation in (None, "None", inspect.Signature.empty), method


def ways(found: type) -> list[tuple[str, inspect.Signature]]:
    """What a class says of its arguments and those of its methods, and their signatures."""
    made = (inspect.getdoc(found) or "") + (inspect.getdoc(vars(found).get("__init__")) or "")
    called = [(inspect.getdoc(each) or "", inspect.signature(each)) for each in methods(found).values()]
    return [(made, inspect.signature(found.__init__)), *called]  # type: ignore[misc]


WAYS = {name: ways(found) for name, found in CLASSES.items()}
"""As they are before other tests have longer deadlines."""


@pytest.mark.parametrize("name", CLASSES)
def test_a_default_is_the_number_that_its_description_says(name: str) -> None:
    for text, signature in WAYS[name]:
        for argument, parameter in signature.parameters.items():
            told = _DEFAULT.search(described(text, argument))
            if told is not None and parameter.default is not parameter.empty:
                default = math.inf if told[1] == "inf" else literal_eval(told[1].replace(",", ""))
                assert (parameter.default, type(parameter.default) is bool) == (default, type(default) is bool), (
                    argument
                )


@pytest.mark.parametrize("name", ["RateLimiter", "AsyncRateLimiter"])
def test_a_method_of_a_limiter_has_an_example(name: str) -> None:
    assert all(">>> " in text_of(method) for method in methods(CLASSES[name]).values())


def arguments_of_users(found: type) -> dict[str, inspect.Parameter]:
    """What a user gives to make one: nothing for errors, protocols, and what the limiters make."""
    return dict(inspect.signature(found).parameters) if found.__name__ in MADE_BY_USERS else {}


def text_of(found: Any) -> str:
    text = inspect.getdoc(found) or ""
    assert text or found.__name__ == "__init__", found
    return text


def described(text: str, name: str) -> str:
    """The description of an argument or a field, of several together too, with the lines that continue it."""
    lines = text.splitlines()
    for i, line in enumerate(lines):
        names, colon, _ = line.partition(": ")
        if colon and line.startswith("    ") and name in names.strip().split(", "):
            end = next((j for j in range(i + 1, len(lines)) if not lines[j].startswith("     ")), len(lines))
            return " ".join(lines[i:end])
    return ""


def test_what_several_classes_have_stands_by_its_own_name_where_sphinx_would_find_another() -> None:
    lines = [line.strip() for line in (inspect.getdoc(rules.Rule) or "").splitlines()]
    assert {"key: as above.", "cost: as above."} <= {*lines}  # in one line they are links that lead to other classes
