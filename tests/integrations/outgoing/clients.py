"""Clients of every library whose requests can be limited, with one face: a response is opened, read and closed."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import aiohttp
import botocore.session
import httpx
import httpx2
import pytest
import requests
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.concurrency import AsyncKeyedConcurrencyLimiter, KeyedConcurrencyLimiter
from batchlimit.integrations.aiohttp_client import LimitedClient
from batchlimit.integrations.botocore import limit_client
from batchlimit.integrations.httpx import AsyncLimitedTransport, LimitedTransport
from batchlimit.integrations.requests import LimitedAdapter
from batchlimit.shared import AsyncSharedConcurrencyLimiter, SharedConcurrencyLimiter
from batchlimit.stores import MemoryStore
from batchlimit.testing import AsyncFaultStore, FaultStore
from tests.awaiting import awaited

FAILURES = httpx.HTTPError, httpx2.HTTPError, aiohttp.ClientError, BotoCoreError, OSError
"""What the libraries raise where a request fails: those of requests and niquests are OSErrors."""


class Opened(NamedTuple):
    """A response of which the body was not read yet."""

    status: int
    read: Callable[[], bytes]
    close: Callable[[], object]
    headers: Mapping[str, str]
    reason: str | None = None


class Client:
    """A client of one of the libraries, by a limiter `rates` or one of this quota, whose store perhaps is away.

    A dict as `concurrency` has the limits of a keyed limiter, `shared` those of a fleet; each read takes `patience` s.
    """

    is_async = False
    refused = 429

    def __init__(
        self,
        concurrency: Any = None,
        *,
        quota: Any = "1000/s",
        shared: Any = None,
        patience: float = 60,
        rates: Any = None,
        is_away: bool = False,
        is_limited: bool = True,
        proxy: str | None = None,
        **options: Any,
    ) -> None:
        kind, faulty = (AsyncRateLimiter, AsyncFaultStore) if self.is_async else (RateLimiter, FaultStore)
        store: Any = faulty(down=True) if is_away else MemoryStore()
        self.rates: Any = rates or kind(store, quota)
        self.is_limited, self.proxy = is_limited, proxy
        self.concurrency: Any = concurrency
        if isinstance(concurrency, dict):
            self.concurrency = (AsyncKeyedConcurrencyLimiter if self.is_async else KeyedConcurrencyLimiter)(concurrency)
        if shared is not None:
            fleet = AsyncSharedConcurrencyLimiter if self.is_async else SharedConcurrencyLimiter
            self.concurrency = fleet(MemoryStore(), shared)
        self.make(patience, concurrency=self.concurrency, **options)

    def make(self, patience: float, **options: Any) -> None:
        raise NotImplementedError

    def open(self, url: str, method: str = "GET") -> Opened:
        raise NotImplementedError

    def get(self, url: str) -> tuple[int, bytes]:
        """Ask, read and close."""
        opened = self.open(url)
        try:
            return opened.status, opened.read()
        finally:
            opened.close()

    def retry_after(self, key: str = "127.0.0.1") -> float:
        """After how many seconds a request with this key has a token."""
        decide = self.rates.decide
        return float((awaited(decide, key) if self.is_async else decide(key)).retry_after)

    def counts(self) -> tuple[int, int, int, int]:
        """How many requests are under way, succeeded, were dropped and ignored."""
        (found,) = self.concurrency.statistics().patterns.values()
        return found.in_flight, found.succeeded, found.dropped, found.ignored

    def close(self) -> None:
        raise NotImplementedError


class Threads(Client):
    """httpx and httpx2."""

    library: Any = httpx

    def make(self, patience: float, **options: Any) -> None:
        inner = self.library.HTTPTransport(proxy=self.proxy) if self.proxy else None
        transport = LimitedTransport(self.rates, transport=inner, **options) if self.is_limited else None
        self.client = self.library.Client(transport=transport, trust_env=False, timeout=patience, follow_redirects=True)

    def open(self, url: str, method: str = "GET") -> Opened:
        response = self.client.send(self.client.build_request(method, url), stream=True)
        return Opened(response.status_code, response.read, response.close, response.headers, response.reason_phrase)

    def close(self) -> None:
        self.client.close()


class Tasks(Client):
    """The same for tasks."""

    is_async = True
    library: Any = httpx

    def make(self, patience: float, **options: Any) -> None:
        inner = self.library.AsyncHTTPTransport(proxy=self.proxy) if self.proxy else None
        transport = AsyncLimitedTransport(self.rates, transport=inner, **options) if self.is_limited else None
        self.client = self.library.AsyncClient(
            transport=transport, trust_env=False, timeout=patience, follow_redirects=True
        )

    def open(self, url: str, method: str = "GET") -> Opened:
        response = awaited(self.client.send, self.client.build_request(method, url), stream=True)
        read, close = partial(awaited, response.aread), partial(awaited, response.aclose)
        return Opened(response.status_code, read, close, response.headers, response.reason_phrase)

    def close(self) -> None:
        awaited(self.client.aclose)


class Threads2(Threads):
    library = httpx2


class Tasks2(Tasks):
    library = httpx2


class Requests(Client):
    """requests."""

    def make(self, patience: float, **options: Any) -> None:
        self.client, self.patience = requests.Session(), patience
        self.prepare(self.client, LimitedAdapter, options)

    def prepare(self, session: Any, adapter: Any, options: dict[str, Any]) -> None:
        session.trust_env = False
        if self.proxy:
            session.proxies = {"http": self.proxy}
        if self.is_limited:
            session.mount("http://", adapter(self.rates, **options))

    def open(self, url: str, method: str = "GET") -> Opened:
        response = self.client.request(method, url, stream=True, timeout=self.patience)
        return Opened(response.status_code, lambda: response.content, response.close, response.headers, response.reason)

    def close(self) -> None:
        self.client.close()


class Niquests(Requests):
    """niquests."""

    client: Any

    def make(self, patience: float, *, multiplexed: bool = False, **options: Any) -> None:
        library = pytest.importorskip("niquests")
        from batchlimit.integrations.niquests import NiquestsAdapter

        self.client, self.patience = library.Session(multiplexed=multiplexed), patience
        self.prepare(self.client, NiquestsAdapter, options)


class AsyncNiquests(Niquests):
    """The same for tasks."""

    is_async = True

    def make(self, patience: float, *, multiplexed: bool = False, **options: Any) -> None:
        library = pytest.importorskip("niquests")
        from batchlimit.integrations.niquests import AsyncNiquestsAdapter

        async def session() -> Any:
            made = library.AsyncSession(multiplexed=multiplexed)
            self.prepare(made, AsyncNiquestsAdapter, options)
            return made

        self.client, self.patience = awaited(session), patience

    def open(self, url: str, method: str = "GET") -> Opened:
        response = awaited(self.client.request, method, url, stream=True, timeout=self.patience)

        async def content() -> Any:
            return await response.content

        close = partial(awaited, response.close)
        return Opened(response.status_code, partial(awaited, content), close, response.headers, response.reason)

    def close(self) -> None:
        awaited(self.client.close)


class Aiohttp(Client):
    """aiohttp."""

    is_async = True

    def make(self, patience: float, **options: Any) -> None:
        async def session() -> aiohttp.ClientSession:
            limited = (LimitedClient(self.rates, **options),) if self.is_limited else ()
            return aiohttp.ClientSession(middlewares=limited, timeout=aiohttp.ClientTimeout(sock_read=patience))

        self.client = awaited(session)

    def open(self, url: str, method: str = "GET") -> Opened:
        async def request() -> Any:
            return await self.client.request(method, url, proxy=self.proxy)

        response = awaited(request)
        read, close = partial(awaited, response.read), partial(awaited, _called, response.close)
        return Opened(response.status, read, close, response.headers, response.reason)

    def close(self) -> None:
        awaited(self.client.close)


async def _called(call: Callable[[], object]) -> object:
    return call()


def of_aws(service: str, url: str, attempts: int = 1, **options: Any) -> Any:
    """Make a client of botocore."""
    retries: Any = {"total_max_attempts": attempts, "mode": "standard"}
    config = Config(retries=retries, s3={"addressing_style": "path"}, proxies={}, **options)
    return botocore.session.Session().create_client(
        service, "eu-central-1", endpoint_url=url, config=config, aws_access_key_id="a", aws_secret_access_key="b"
    )


class Botocore(Client):
    """S3 of botocore."""

    refused = 503

    def make(self, patience: float, **options: Any) -> None:
        self.options, self.patience = options, patience
        self.clients: dict[str, Any] = {}

    def client(self, url: str) -> Any:
        if url not in self.clients:
            self.clients[url] = of_aws("s3", url, read_timeout=self.patience)
            if self.is_limited:
                limit_client(self.clients[url], self.rates, **self.options)
        return self.clients[url]

    def open(self, url: str, method: str = "GET") -> Opened:
        try:
            if method == "HEAD":
                self.client(url).head_object(Bucket="bucket", Key="key")
                return Opened(200, bytes, bool, {})
            found = self.client(url).get_object(Bucket="bucket", Key="key")
        except ClientError as error:
            told: Any = error.response["ResponseMetadata"]
            return Opened(told["HTTPStatusCode"], bytes, bool, told["HTTPHeaders"])
        return Opened(200, found["Body"].read, found["Body"].close, found["ResponseMetadata"]["HTTPHeaders"])

    def close(self) -> None:
        for client in self.clients.values():
            client.close()


CLIENTS = [Threads, Tasks, Threads2, Tasks2, Requests, Niquests, AsyncNiquests, Aiohttp, Botocore]
