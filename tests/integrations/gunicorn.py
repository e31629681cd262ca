"""A real gunicorn or uvicorn in a process of its own, and how to speak to it."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
_PATIENCE_S = 100.0
_LISTENING = re.compile(r"(?:Listening at:|Uvicorn running on) http://127\.0\.0\.1:(\d+)")

# No worker is killed because it stalled, no connection closed because its client did.
_GUNICORN = [
    "gunicorn",
    "--bind=127.0.0.1:0",
    "--no-control-socket",
    "--workers=2",
    "--timeout=0",
    "--keep-alive=1000",
    "--graceful-timeout=5",
]
KINDS = {
    "sync": [*_GUNICORN, "--worker-class=sync"],
    "gthread": [*_GUNICORN, "--worker-class=gthread", "--threads=4"],
    "sync-preload": [*_GUNICORN, "--worker-class=sync", "--preload"],
    "gthread-preload": [*_GUNICORN, "--worker-class=gthread", "--threads=4", "--preload"],
}
"""The kinds of workers that a WSGI application is served by."""
UVICORN = {
    "uvicorn": ["uvicorn", "--host=127.0.0.1", "--port=0", "--lifespan=auto", "--timeout-keep-alive=1000"],
}
"""The kinds of workers that an ASGI application is served by."""


@contextlib.contextmanager
def served(app: str, kind: str, url: str, prefix: str) -> Iterator[httpx.Client]:
    """Serve an application, "module:name", whose store stands in the environment; it is ended by its pid."""
    command = [sys.executable, "-m", *{**KINDS, **UVICORN}[kind], app]
    environment = {**os.environ, "STORE": url, "PREFIX": prefix}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    try:
        port = next(found[1] for line in process.stderr if (found := _LISTENING.search(line)))
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=_PATIENCE_S, trust_env=False) as client:
            yield client
    finally:
        process.terminate()
        try:
            _, said = process.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
        sys.stdout.write(said)  # shown if a test fails
