"""Timeouts, lost connections and refusals of the packages that services call others with: the real ones."""

import asyncio
import socket
import sqlite3
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import botocore.exceptions
import botocore.session
import grpc
import httpx
import psycopg
import pytest
import redis
import redis.asyncio
import requests
import sqlalchemy
import sqlalchemy.exc
import urllib3
from botocore.config import Config
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy.ext.asyncio import create_async_engine

from batchlimit.concurrency import Outcome, classification, classify

BRIEF = 0.05
"""Seconds that clients wait for a server which never answers: however slow the machine, they end in a timeout."""


@contextmanager
def closed() -> Iterator[int]:
    """A port where nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        yield listener.getsockname()[1]


@contextmanager
def silent() -> Iterator[int]:
    """A server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@contextmanager
def abrupt() -> Iterator[int]:
    """A server that ends each connection as soon as it has heard something."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as stack:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connection.settimeout(60)  # else a client that never speaks would hold the server
                    connection.recv(1)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    connection.close()

        server = threading.Thread(target=serve)
        server.start()
        stack.callback(server.join)
        stack.callback(listener.shutdown, socket.SHUT_RDWR)
        yield listener.getsockname()[1]


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/"


def by_httpx(port: int) -> object:
    return httpx.get(url(port), timeout=BRIEF, trust_env=False)


def by_requests(port: int) -> object:
    with requests.Session() as session:
        session.trust_env = False
        return session.get(url(port), timeout=BRIEF)


def by_urllib3(port: int) -> object:
    with urllib3.PoolManager() as pool:
        return pool.request("GET", url(port), timeout=BRIEF, retries=1)


def by_urllib3_once(port: int) -> object:
    with urllib3.PoolManager() as pool:
        return pool.request("GET", url(port), timeout=BRIEF, retries=False)


def by_urllib(port: int) -> object:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(url(port), timeout=BRIEF)


def by_aiohttp(port: int) -> object:
    async def get() -> None:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(BRIEF)) as session,
            session.get(url(port)) as response,
        ):
            await response.read()

    return asyncio.run(get())


def by_botocore(port: int) -> object:
    config = Config(read_timeout=BRIEF, retries={"total_max_attempts": 1}, proxies={})
    client = botocore.session.Session().create_client(
        "sqs", "eu-central-1", endpoint_url=url(port), aws_access_key_id="a", aws_secret_access_key="b", config=config
    )
    try:
        return client.list_queues()
    finally:
        client.close()


def by_redis(port: int) -> object:
    with redis.Redis(port=port, socket_timeout=BRIEF, retry=Retry(NoBackoff(), 0)) as client:
        return client.ping()


def by_async_redis(port: int) -> object:
    async def ping() -> None:
        async with redis.asyncio.Redis(port=port, socket_timeout=BRIEF, retry=AsyncRetry(NoBackoff(), 0)) as client:
            await client.ping()

    return asyncio.run(ping())


def by_grpc(port: int) -> object:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary("/a/b")
        return call(b"", timeout=BRIEF)


def by_grpc_stream(port: int) -> object:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_stream("/a/b")
        return list(call(b"", timeout=BRIEF))


def by_async_grpc(port: int) -> object:
    async def call() -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: Any = channel.unary_unary("/a/b")
            await call(b"", timeout=BRIEF)

    return asyncio.run(call())


def by_asyncpg(port: int) -> object:
    return asyncio.run(asyncpg.connect(host="127.0.0.1", port=port, user="u", timeout=BRIEF, ssl=False))


def by_psycopg(port: int) -> object:
    return psycopg.connect(host="127.0.0.1", port=port, user="u", connect_timeout=2)


def by_sqlalchemy(port: int) -> object:
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://u@127.0.0.1:{port}/d", connect_args={"connect_timeout": 2})
    return engine.connect()


def by_async_sqlalchemy(port: int) -> object:
    async def connect() -> None:
        engine = create_async_engine(
            f"postgresql+asyncpg://u@127.0.0.1:{port}/d", connect_args={"timeout": BRIEF, "ssl": False}
        )
        await engine.connect()

    return asyncio.run(connect())


CALLS: list[Callable[[int], object]] = [
    by_httpx, by_requests, by_urllib3, by_urllib3_once, by_urllib, by_aiohttp, by_botocore, by_redis, by_async_redis,
    by_grpc, by_grpc_stream, by_async_grpc, by_asyncpg, by_psycopg, by_sqlalchemy, by_async_sqlalchemy,
]  # fmt: skip


@pytest.mark.parametrize("server", [closed, silent, abrupt])
@pytest.mark.parametrize("call", CALLS)
def test_a_server_that_is_away_makes_a_call_a_drop(call: Callable[[int], object], server: Any) -> None:
    with server() as port, pytest.raises(Exception) as caught:  # noqa: PT011  each package has its own
        call(port)
    assert classify(caught.value) is Outcome.DROPPED, repr(caught.value)


def test_a_database_that_is_locked_is_a_drop(tmp_path: Path) -> None:
    """SQLAlchemy's error and the driver's own."""
    path = tmp_path / "d"
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", connect_args={"timeout": 0})
    other = sqlite3.connect(path)
    other.execute("begin exclusive")
    with engine.connect() as connection, pytest.raises(sqlalchemy.exc.OperationalError) as caught:
        connection.execute(sqlalchemy.text("create table t (a)"))
    other.close()
    engine.dispose()
    assert classify(caught.value) is Outcome.DROPPED
    assert isinstance(caught.value.orig, BaseException)
    assert classify(caught.value.orig) is Outcome.DROPPED


def test_a_pool_without_a_connection_is_a_drop() -> None:
    engine = sqlalchemy.create_engine(
        "sqlite://", poolclass=sqlalchemy.QueuePool, pool_size=1, max_overflow=0, pool_timeout=0
    )
    with engine.connect(), pytest.raises(sqlalchemy.exc.TimeoutError) as caught:
        engine.connect()
    engine.dispose()
    assert classify(caught.value) is Outcome.DROPPED


class OwnTimeout(httpx.ReadTimeout):
    """An error of a user."""


class Rejected(grpc.RpcError):
    """What a call with a status raises, of either API."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code


def aio_error(code: grpc.StatusCode) -> Exception:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata())


def connection_lost() -> Exception:
    return sqlalchemy.exc.OperationalError("select 1", {}, Exception("gone"), connection_invalidated=True)


@pytest.mark.parametrize(
    "error",
    [
        OwnTimeout("own"),
        httpx.PoolTimeout("full"),
        httpx.RemoteProtocolError("disconnected"),
        requests.exceptions.ChunkedEncodingError(),
        aiohttp.ServerDisconnectedError(),
        aiohttp.ClientPayloadError(),
        redis.exceptions.MaxConnectionsError(),
        redis.exceptions.BusyLoadingError(),
        redis.exceptions.OutOfMemoryError(),
        *[
            make(grpc.StatusCode[name])
            for name in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")
            for make in (Rejected, aio_error)
        ],
        connection_lost(),
        asyncpg.exceptions.QueryCanceledError("statement timeout"),
        asyncpg.exceptions.TooManyConnectionsError(),
        asyncpg.exceptions.ConnectionDoesNotExistError(),
        psycopg.errors.QueryCanceled(),
        psycopg.errors.AdminShutdown(),
        psycopg.errors.LockNotAvailable(),
        psycopg.errors.ConnectionTimeout(),
        ExceptionGroup("", [ValueError(), ExceptionGroup("", [httpx.ConnectTimeout("slow")])]),
    ],
    ids=repr,
)
def test_a_timeout_a_lost_connection_and_a_refusal_further_down_are_drops(error: Exception) -> None:
    assert classify(error) is Outcome.DROPPED


@pytest.mark.parametrize(
    "error",
    [
        httpx.HTTPStatusError("404", request=httpx.Request("GET", "http://a"), response=httpx.Response(404)),
        httpx.InvalidURL("no"),
        httpx.DecodingError("no"),
        requests.exceptions.InvalidURL(),
        requests.exceptions.SSLError(),
        requests.HTTPError(),
        botocore.exceptions.SSLError(endpoint_url="a", error=ValueError()),
        botocore.exceptions.NoCredentialsError(),
        urllib3.exceptions.LocationParseError("no"),
        aiohttp.InvalidURL("no"),
        aiohttp.ServerFingerprintMismatch(b"", b"", "a", 1),
        redis.exceptions.ResponseError(),
        redis.exceptions.AuthenticationError(),
        redis.exceptions.WatchError(),
        grpc.RpcError(),
        *[make(grpc.StatusCode[name]) for name in ("NOT_FOUND", "CANCELLED") for make in (Rejected, aio_error)],
        sqlalchemy.exc.IntegrityError("insert", {}, sqlite3.IntegrityError()),
        sqlalchemy.exc.NoResultFound(),
        asyncpg.exceptions.UniqueViolationError(),
        asyncpg.exceptions.UndefinedTableError(),
        psycopg.errors.UniqueViolation(),
        psycopg.ProgrammingError(),
        sqlite3.OperationalError("no such table"),
    ],
    ids=repr,
)
def test_an_error_that_has_another_cause_tells_nothing(error: Exception) -> None:
    assert classify(error) is Outcome.IGNORED


def test_an_error_of_the_same_name_from_elsewhere_tells_nothing() -> None:
    stranger = type("ConnectError", (Exception,), {"__module__": "httpxtra"})
    assert classify(stranger()) is Outcome.IGNORED


def mysql(package: str, *arguments: object) -> Exception:
    """What a driver raises that is not installed here."""
    error: Exception = type("OperationalError", (Exception,), {"__module__": f"{package}.err"})(*arguments)
    return error


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (mysql("pymysql", 2013, "lost"), Outcome.DROPPED),
        (mysql("MySQLdb", 1205, "lock wait"), Outcome.DROPPED),
        (mysql("pymysql", 1064, "syntax"), Outcome.IGNORED),
        (mysql("pymysql"), Outcome.IGNORED),
    ],
    ids=repr,
)
def test_errors_of_mysql_go_by_their_number(error: Exception, outcome: Outcome) -> None:
    assert classify(error) is outcome


def test_it_imports_none_of_the_packages() -> None:
    assert not {"httpx", "requests", "urllib3", "aiohttp", "redis", "grpc", "sqlalchemy"} & vars(classification).keys()
