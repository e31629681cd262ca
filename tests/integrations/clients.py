"""HTTP clients that test a server: one for each thread."""

import threading
from contextlib import ExitStack
from typing import Self

import httpx

DEADLINE = 100.0


class Clients:
    """Each thread has one of its own: of threads that share one, httpcore gives one's connection to another."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._local = threading.local()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def own(self) -> httpx.Client:
        """This thread's client."""
        if not hasattr(self._local, "client"):
            client = httpx.Client(base_url=self._url, timeout=DEADLINE, trust_env=False)
            self._local.client = self._stack.enter_context(client)
        found: httpx.Client = self._local.client
        return found
