"""What is not used is not imported, and nobody can tell: each package has all of its names, whoever asks how."""

import ast
import pickle
import pydoc
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import batchlimit
from batchlimit import concurrency, stores, types
from batchlimit.concurrency import laws, watchers
from batchlimit.integrations import asgi, wsgi

PACKAGES = [asgi, batchlimit, concurrency, laws, stores, types, watchers, wsgi]
CONCURRENCY = [
    "batchlimit.concurrency.locked_gate",
    "batchlimit.concurrency.laws",
    "batchlimit.concurrency.watchers",
    "batchlimit.concurrency.limiter",
]
STORES = ["redis", "tenacity", "hiredis", "batchlimit.stores"]


def in_a_fresh_process(program: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], check=True, capture_output=True, text=True, timeout=300
    )
    return run.stdout


@pytest.mark.parametrize(
    ("statement", "unused"),
    [
        (
            "import batchlimit",
            [*STORES, "asyncio", "batchlimit.aio", "batchlimit.sync", "batchlimit.reservoir", *CONCURRENCY],
        ),
        ("from batchlimit import Quota, StoreUnavailable", [*STORES, "asyncio", "batchlimit.aio", "batchlimit.sync"]),
        (
            "from batchlimit import RateLimiter",
            ["batchlimit.aio", "batchlimit.stores.async_redis", "batchlimit.stores.memory", *CONCURRENCY],
        ),
        ("from batchlimit import AsyncRateLimiter", ["batchlimit.sync", *CONCURRENCY]),
        ("from batchlimit import ConcurrencyLimiter", [*STORES, "batchlimit.aio", "batchlimit.concurrency.laws.vegas"]),
        (
            "from batchlimit import AsyncConcurrencyLimiter",
            [*STORES, "batchlimit.sync", "batchlimit.concurrency.laws.vegas"],
        ),
        ("from batchlimit.laws import Fixed", [*STORES, "asyncio", "batchlimit.concurrency.laws.vegas"]),
        ("from batchlimit.watchers import Rounds", [*STORES, "asyncio", "batchlimit.concurrency.watchers.cpu"]),
        ("from batchlimit.batching import FixedBatch", [*STORES[:3], "asyncio", "batchlimit.aio", "batchlimit.sync"]),
        (
            "from batchlimit.integrations.wsgi import RateLimitMiddleware",
            ["batchlimit.aio", "batchlimit.shared", "batchlimit.stores.async_redis", *CONCURRENCY],
        ),
        ("from batchlimit.integrations.asgi import RateLimitMiddleware", ["batchlimit.shared", *CONCURRENCY]),
        ("from batchlimit.stores import MemoryStore", [*STORES[:3], "asyncio", "batchlimit.stores.redis"]),
    ],
)
def test_what_is_not_used_is_not_imported(statement: str, unused: list[str]) -> None:
    imported = set(in_a_fresh_process(f"{statement}\nimport sys\nprint(*sys.modules)").split())
    assert not imported & set(unused)


def test_names_of_several_threads_are_the_same() -> None:
    """Sixteen that ask for all names at the same moment, each in another order."""
    program = """
    import threading, sys, batchlimit
    from batchlimit import concurrency, stores, types
    from batchlimit.concurrency import laws, watchers
    from batchlimit.integrations import asgi, wsgi
    sys.setswitchinterval(1e-5)
    packages = [asgi, batchlimit, concurrency, laws, stores, types, watchers, wsgi]
    names = [(package, name) for package in packages for name in package.__all__]
    ready, found = threading.Barrier(16), [None] * 16
    def ask(number):
        ready.wait()
        first = number * 5 % len(names)
        found[number] = {(p.__name__, n): getattr(p, n) for p, n in names[first:] + names[:first]}
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert all(each == found[0] for each in found)
    print(len(found[0]))
    """
    assert int(in_a_fresh_process(program)) == sum(len(package.__all__) for package in PACKAGES)


def test_a_star_brings_all_names() -> None:
    assert in_a_fresh_process(
        "from batchlimit import *; import batchlimit; print(set(batchlimit.__all__) <= set(globals()))"
    ).split() == ["True"]


def test_modules_of_the_package_are_its_attributes() -> None:
    """As they were when all was imported at once."""
    program = "import batchlimit; print(batchlimit.laws.Fixed(3), batchlimit.errors.RateLimited.__name__)"
    assert in_a_fresh_process(program).split() == ["Fixed(3)", "RateLimited"]


def test_a_module_whose_names_live_elsewhere_has_the_same_ones() -> None:
    assert (batchlimit.laws.Fixed, batchlimit.watchers.Rounds) == (laws.Fixed, watchers.Rounds)
    assert dir(batchlimit.laws) == dir(laws)


def test_dir_and_help_know_all_names_before_anybody_asked() -> None:
    program = """
    import batchlimit, pydoc
    assert set(batchlimit.__all__) <= set(dir(batchlimit))
    text = pydoc.render_doc(batchlimit)
    print(*[name for name in batchlimit.__all__ if name not in text])
    """
    assert in_a_fresh_process(program).split() == []


def seen_by_type_checkers(package: ModuleType) -> Iterator[tuple[str, str]]:
    """The names that a package imports where only a type checker looks, each with its module; its modules aside."""
    assert package.__file__ is not None
    for node in ast.parse(Path(package.__file__).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If):
            for each in node.body:
                if isinstance(each, ast.AnnAssign):  # __version__
                    continue
                assert isinstance(each, ast.ImportFrom)
                assert each.module is not None
                yield from ((each.module, alias.name) for alias in each.names if not alias.asname)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_type_checkers_see_what_there_is(package: ModuleType) -> None:
    seen = list(seen_by_type_checkers(package))
    assert sorted(name for _, name in seen) == package.__all__
    for module, name in seen:
        assert getattr(package, name) is getattr(import_module(module), name)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_a_name_that_there_is_not_is_an_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'RateLimitr'"):
        package.RateLimitr  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'RateLimitr'"):
        exec(f"from {package.__name__} import RateLimitr")


def test_public_classes_and_values_are_pickled() -> None:
    classes = [getattr(batchlimit, name) for name in batchlimit.__all__]
    assert pickle.loads(pickle.dumps(classes)) == classes
    data = pickle.dumps(batchlimit.Quota.per_minute(5))
    assert in_a_fresh_process(f"import pickle; print(pickle.loads({data!r}))") == f"{batchlimit.Quota.per_minute(5)}\n"


def test_help_of_a_public_name_is_its_own() -> None:
    assert "class RateLimiter" in pydoc.render_doc(batchlimit.RateLimiter)


def test_a_name_whose_module_cannot_be_imported_says_why() -> None:
    """As under eventlet, which takes it away: `from ... import` tells nothing of an AttributeError."""
    program = """
        import select
        del select.poll
        try:
            from batchlimit import RateLimiter
        except ImportError as error:
            print(error)
    """
    told = "batchlimit.sync.limiter cannot be imported: module 'select' has no attribute 'poll'"
    assert in_a_fresh_process(program).strip() == told
