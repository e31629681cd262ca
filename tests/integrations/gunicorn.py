"""A real gunicorn or uvicorn in a process of its own, and how to speak to it."""

import contextlib
from collections.abc import Iterator

import httpx

from tests.integrations.worker_commands import DEADLINE, GUNICORN, ROOT, working

# No connection is closed because its client stalled.
_GUNICORN = [*GUNICORN, "--bind=fd://{fd}", "--workers=2", "--keep-alive=1000"]
_UVICORN = ["uvicorn", "--fd={fd}", "--lifespan=auto", "--timeout-keep-alive=1000", "--log-level=error"]
KINDS = {
    "sync": [*_GUNICORN, "--worker-class=sync"],
    "gthread": [*_GUNICORN, "--worker-class=gthread", "--threads=4"],
    "sync-preload": [*_GUNICORN, "--worker-class=sync", "--preload"],
    "gthread-preload": [*_GUNICORN, "--worker-class=gthread", "--threads=4", "--preload"],
}
"""The kinds of workers that a WSGI application is served by."""
ASGI_KINDS = {
    "uvicorn": _UVICORN,
    "uvicorn-workers": [*_UVICORN, "--workers=2"],
    "gunicorn-asgi": [*_GUNICORN, "--worker-class=asgi"],
}
"""The kinds of workers that an ASGI application is served by."""


@contextlib.contextmanager
def served(app: str, kind: str, url: str, prefix: str) -> Iterator[httpx.Client]:
    """Serve an application, "module:name", whose store stands in the environment; it is ended by its pid."""
    command = [*{**KINDS, **ASGI_KINDS}[kind], app]
    with (
        working(command, ROOT, STORE=url, PREFIX=prefix) as crew,
        httpx.Client(base_url=f"http://127.0.0.1:{crew.port}", timeout=DEADLINE, trust_env=False) as client,
    ):
        yield client
