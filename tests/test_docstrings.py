"""Every public name of both limiters says what it takes, returns and raises, and its example runs."""

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
from typing import Any, Unpack, get_args, get_origin, get_type_hints

import pytest

import batchlimit
from batchlimit import concurrency, rules
from batchlimit.concurrency import AsyncPermit, AsyncPermits, Permit, Permits
from batchlimit.concurrency.permit import State
from tests.examples import run_examples

ROOT = Path(batchlimit.__path__[0])
PACKAGES = sorted({each.parent.name for each in ROOT.glob("*/__init__.py")} - {"telemetry", "integrations"})
"""Examples of telemetry print figures; those of integrations run in tests/integrations."""
FACE = [
    "batchlimit",
    *(f"batchlimit.{module}" for module in ("admission", "batching", "errors", "rules", "shared", "stores")),
    *(f"batchlimit.{module}" for module in ("testing", "types", "concurrency", "laws", "watchers")),
    "batchlimit.integrations.grpc",
]
OF_CALLS = "batchlimit.concurrency", "batchlimit.integrations.grpc"
"""Of these each method and function tells the default of each argument too."""
PROMISED = {"AsyncStore", "Remote", "AsyncRemote", "RedisStore", "AsyncRedisStore", "MemoryStore"}
PROMISED |= {"FaultStore", "AsyncFaultStore", "FakeLimiter", "AsyncFakeLimiter", "KeyHandle", "AsyncKeyHandle"}
PROMISED |= {"CallResponse"}  # the interceptors alone make it
"""The methods of Store, and what Remote adds: the sections stand at Store, once. Those of RateLimiter stand there."""
WITHOUT_EXAMPLE = {"BucketUnavailable", "WatcherUnavailable", "Remote", "AsyncRemote"}
"""Nobody makes them, or the example of their base is theirs."""
PROMISED_MEMBERS = {"limit", "update", "calibrate", "add", "take", "capacity", "name", "poll"}
"""Of the protocols Law, Calibrated, Window and Watcher: the sections stand there, once."""

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


def names() -> Iterator[tuple[str, Any]]:
    for module in map(import_module, FACE):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found) or (inspect.isfunction(found) and is_of_calls(found)):
                yield name, found


def is_of_calls(found: Any) -> bool:
    return str(found.__module__).startswith(OF_CALLS)


def members(found: type) -> dict[str, Any]:
    """What a class holds, and what it has from bases of our own."""
    ours = [base for base in reversed(found.__mro__) if base.__module__.startswith("batchlimit.")]
    return {name: member for base in ours for name, member in vars(base).items()}


NAMES = dict(names())
CLASSES = {name: found for name, found in NAMES.items() if inspect.isclass(found)}


def methods(found: type) -> dict[str, Any]:
    """The public methods of a class, but those that a foreign base has described."""
    foreign = {name for base in found.__mro__ if not base.__module__.startswith("batchlimit.") for name in vars(base)}
    return {
        name: inspect.unwrap(getattr(found, name))
        for name, member in members(found).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, classmethod))
        if name not in foreign
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


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_a_docstring_with_an_example(name: str) -> None:
    assert name in WITHOUT_EXAMPLE or ">>> " in text_of(NAMES[name])


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_describes_what_it_is_made_of(name: str) -> None:
    found = NAMES[name]
    fields = [each.name for each in dataclasses.fields(found)] if dataclasses.is_dataclass(found) else []
    for field in [*fields, *getattr(found, "_fields", ())]:
        if field.startswith("_"):  # it is kept for the class alone
            continue
        assert described(text_of(found), field), field
    of_users = arguments_of_users(found)
    all_are_told(text_of(found) + text_of(getattr(found, "__init__", found)) if of_users else "", of_users, True)


@pytest.mark.parametrize("name", CLASSES)
def test_a_public_method_says_what_it_takes_and_returns(name: str) -> None:
    of_calls = is_of_calls(CLASSES[name])
    for method, found in methods(CLASSES[name]).items():
        text, signature = text_of(found), inspect.signature(found)
        is_promised = method in PROMISED_MEMBERS and of_calls and not is_protocol(CLASSES[name])
        if is_promised or (name in PROMISED and method != "from_url"):
            continue
        arguments = {
            argument: each for argument, each in signature.parameters.items() if argument not in {"self", "cls"}
        }
        all_are_told(text, arguments, of_calls)
        assert "Returns:" in text or signature.return_annotation in (None, "None", inspect.Signature.empty), method
    for member in members(CLASSES[name]).items() if of_calls else ():
        assert not isinstance(member[1], property) or member[0].startswith("_") or text_of(member[1]), member


def all_are_told(text: str, arguments: dict[str, inspect.Parameter], with_defaults: bool) -> None:
    for argument, parameter in arguments.items():
        description = described(text, argument)
        assert description, argument
        assert not with_defaults or parameter.default is parameter.empty or "default" in description, argument


def ways(found: type) -> list[tuple[str, inspect.Signature]]:
    """What a class says of its arguments and those of its methods, and their signatures."""
    made = (inspect.getdoc(found) or "") + (inspect.getdoc(vars(found).get("__init__")) or "")
    called = [(inspect.getdoc(each) or "", inspect.signature(each)) for each in methods(found).values()]
    return [(made, inspect.signature(found.__init__)), *called]  # type: ignore[misc]


WAYS = {
    name: ways(found) for name, found in CLASSES.items() if name != "Vegas"
}  # whose default 3 is log10 times as much
"""As they are before other tests have longer deadlines."""


@pytest.mark.parametrize("name", WAYS)
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


def arguments_of_users(found: Any) -> dict[str, inspect.Parameter]:
    """What a user gives: nothing for errors, protocols, and what the limiters make."""
    is_made = found not in (Permit, AsyncPermit, Permits, AsyncPermits) and not is_protocol(found)
    if (not (is_made and is_of_calls(found)) and found.__name__ not in MADE_BY_USERS) or issubclass_of(
        found, Exception
    ):
        return {}
    given = {name: each for name, each in inspect.signature(found).parameters.items() if name != "self"}
    passed_on = {name: each for parameter in given.values() for name, each in options(parameter).items()}
    return {name: each for name, each in given.items() if not options(each)} | passed_on


def is_protocol(found: Any) -> bool:
    of_laws = str(found.__module__).endswith("concurrency.law") and not issubclass_of(found, tuple)
    return of_laws or getattr(found, "_is_protocol", False)


def issubclass_of(found: Any, kind: type) -> bool:
    return inspect.isclass(found) and issubclass(found, kind)


def options(given: inspect.Parameter) -> dict[str, inspect.Parameter]:
    """The arguments that a class passes on, by the TypedDict that names them; all have defaults."""
    if given.kind is not given.VAR_KEYWORD or get_origin(given.annotation) is not Unpack:
        return {}
    names = get_type_hints(get_args(given.annotation)[0])
    return {name: inspect.Parameter(name, given.KEYWORD_ONLY, default=...) for name in names}


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


@pytest.mark.parametrize(
    ("permit", "names"),
    [
        (Permit, "answered check drop ignore operation priority shed start_ns success"),
        (AsyncPermit, "answered drop ignore operation priority shed start_ns success"),
    ],
)
def test_a_permit_shows_its_contract_alone(permit: type, names: str) -> None:
    assert [name for name in dir(permit) if not name.startswith("_")] == names.split()


def test_permits_and_their_states_are_told_of() -> None:
    completing = [
        getattr(each, name) for each in (Permits, AsyncPermits) for name in ("success", "drop", "ignore", "answered")
    ]
    assert all("Complete all permits" in text_of(each) for each in completing)
    assert all(f"    {state.name} " in text_of(concurrency) for state in State)
