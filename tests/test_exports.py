"""What users import: few names of the package, the rest by module."""

import importlib.metadata
import inspect
import subprocess
import sys
from importlib import import_module

import pytest

import batchlimit
from batchlimit import errors

MODULES = ["admission", "batching", "concurrency", "errors", "laws", "rules", "shared", "stores", "testing", "types"]
MODULES += ["watchers"]


def test_the_package_has_at_most_sixteen_names() -> None:
    assert len(batchlimit.__all__) <= 16


@pytest.mark.parametrize("name", ["batchlimit", *(f"batchlimit.{module}" for module in MODULES)])
def test_every_public_name_exists_and_they_are_sorted(name: str) -> None:
    module = import_module(name)
    assert sorted(module.__all__) == list(module.__all__)
    assert all(hasattr(module, each) for each in module.__all__)


def test_a_name_has_one_public_module() -> None:
    names = [name for module in ["batchlimit.errors", "batchlimit"] for name in import_module(module).__all__]
    rest = [name for module in MODULES if module != "errors" for name in import_module(f"batchlimit.{module}").__all__]
    assert len(rest) == len({*rest} - {*names})


def test_every_error_is_public_and_of_one_family() -> None:
    raised = [each for each in vars(errors).values() if isinstance(each, type) and each.__module__ == errors.__name__]
    assert all(issubclass(each, batchlimit.BatchLimitError) for each in raised)
    assert {each.__name__ for each in raised} == set(errors.__all__)


def test_the_version_is_that_of_the_installed_distribution() -> None:
    assert batchlimit.__version__ == importlib.metadata.version("batchlimit")


def test_dir_shows_public_names_and_modules_alone_whatever_was_imported() -> None:
    program = "import batchlimit, batchlimit.sync.limiter; print(*(n for n in dir(batchlimit) if n[:2] != '__'))"
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=300)
    assert run.stdout.split() == sorted([*batchlimit.__all__, *MODULES])


@pytest.mark.parametrize("limiter", [batchlimit.RateLimiter, batchlimit.AsyncRateLimiter])
def test_a_signature_shows_no_machinery(
    limiter: type[batchlimit.RateLimiter] | type[batchlimit.AsyncRateLimiter],
) -> None:
    assert "functools.partial" not in f"{inspect.signature(limiter)}{inspect.signature(limiter.from_url)}"
