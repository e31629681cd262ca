"""What an integration says whose framework is not installed."""

import subprocess
import sys

import pytest

EXTRAS = [
    ("aiohttp", "aiohttp", "aiohttp"),
    ("aiohttp_client", "aiohttp", "aiohttp"),
    ("arq", "arq", "arq"),
    ("botocore", "botocore", "botocore"),
    ("celery", "celery", "celery"),
    ("django", "django", "Django"),
    ("dramatiq", "dramatiq", "dramatiq"),
    ("flask", "flask", "Flask"),
    ("grpc", "grpc", "grpcio"),
    ("niquests", "niquests", "niquests"),
    ("procrastinate", "procrastinate", "procrastinate"),
    ("quart", "quart", "Quart"),
    ("requests", "requests", "requests"),
    ("rq", "rq", "rq"),
    ("taskiq", "taskiq", "taskiq"),
]


@pytest.mark.parametrize(("name", "module", "package"), EXTRAS)
def test_a_missing_framework_names_the_extra(name: str, module: str, package: str) -> None:
    without = f"import sys; sys.modules[{module!r}] = None; import batchlimit.integrations.{name}"
    found = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    extra = name.removesuffix("_client")
    assert found.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: batchlimit.integrations.{name} needs {package}, of the {extra!r} extra: "
        f"pip install 'batchlimit[{extra}]'"
    )
