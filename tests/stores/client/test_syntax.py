"""What cannot be meant in a URL is refused where the limiter is made, on both APIs, without showing any of it."""

import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
import redis.asyncio

from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.bucket.messages import Spend
from batchlimit.quota.quota import Quota
from batchlimit.stores import AsyncRedisStore, RedisStore
from batchlimit.stores.client import scripts
from batchlimit.stores.client.address import client_address, read_url
from batchlimit.stores.client.scripts import ServerClocks, SpendScript
from batchlimit.stores.client.settings import OPTIONS

APIS = pytest.mark.parametrize("limiter", [RateLimiter, AsyncRateLimiter])
STORES = pytest.mark.parametrize("store", [RedisStore, AsyncRedisStore])


def refused(limiter: type[RateLimiter | AsyncRateLimiter], url: str, *said: str) -> str:
    with pytest.raises(ValueError, match=r"cannot be read|redis-py") as caught:
        limiter.from_url(url, "1/s")
    message = str(caught.value)
    assert all(each in message for each in said), message
    return message


# What separates the parts of a URL, unencoded in the password

PLACES = [
    "redis://:{0}@host",
    "redis://user:{0}@host:6379/0",
    "rediss://:{0}@host/1",
    "valkey://:{0}@host?db=1",
    "unix://:{0}@/tmp/socket",
    "redis+cluster://:{0}@host:1,host:2",
    "rediss+cluster://user:{0}@host",
    "redis+sentinel://:{0}@host:1,host:2/service/0",
]


@APIS
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("password", ["12@s3cret", "12#s3cret", "12/s3cret", "s3cret@", "@s3cret", "12?s3cret"])
def test_a_password_that_is_not_percent_encoded_is_refused(
    limiter: type[RateLimiter], place: str, password: str
) -> None:
    """Twelve might be a port, and what follows the host, the database or the service."""
    message = refused(limiter, place.format(password), "percent-encode")
    assert "s3cret" not in message
    assert "12" not in message


@pytest.mark.parametrize("rest", ["12?s3cret=1@host", "12?s3cret&x@host", "12?x@y=s3cret"])
@APIS
def test_a_question_mark_in_a_password_makes_no_option_of_it(limiter: type[RateLimiter], rest: str) -> None:
    assert "s3cret" not in refused(limiter, f"redis://user:{rest}", "percent-encode")


@APIS
def test_an_and_in_a_password_among_the_options_makes_no_option_of_it(limiter: type[RateLimiter]) -> None:
    for rest in ("s3cret", "s3cret=1", "db2=1"):
        message = refused(limiter, f"redis://h?password=x&{rest}", "percent-encode", "'password'")
        assert rest.partition("=")[0] not in message


@APIS
def test_white_space_in_a_password_is_not_dropped(limiter: type[RateLimiter]) -> None:
    assert "s3cret" not in refused(limiter, "redis://:s3\ncret@host", "percent-encode")


@STORES
@pytest.mark.parametrize("place", [*PLACES, "redis://host?password={0}", "redis://host:1/2?db=3&password={0}"])
def test_a_percent_encoded_password_is_decoded(store: type[RedisStore] | type[AsyncRedisStore], place: str) -> None:
    url = place.format("%40a%23b%2Fc%3Fd%25e%26f%2Bg%3Ah")
    assert read_url(url).options["password"] == "@a#b/c?d%e&f+g:h"
    assert "@" not in repr(store.from_url(url))


# What is no URL of a store

PLACELESS = [
    ("redis:/localhost", "missing '//'"),
    ("redis:localhost", "missing '//'"),
    ("rediss:/h", "missing '//' after rediss:"),
    ("redis+cluster:/h", "missing '//'"),
    ("memory:", "missing '//'"),
    ("memory://h", "nothing may follow memory://"),
    ("embedded://?db=1", "nothing may follow embedded://"),
    ("redis://:6379", "user:password@host"),
    ("redis://host:0", "from 1 to 65535"),
    ("redis://host:99999", "user:password@host"),
    ("unix://", "three slashes"),
    ("unix://tmp/socket", "three slashes"),
    ("redis+sentinel://h", "primary by its name"),
    ("redis+sentinel://h/s/x", "whole number"),
    ("redis+cluster://h/1", "one database"),
    ("redis+cluster://h?db=1", "one database"),
]


@APIS
@pytest.mark.parametrize(("url", "said"), PLACELESS)
def test_a_url_without_a_server_is_refused_with_the_reason(limiter: type[RateLimiter], url: str, said: str) -> None:
    refused(limiter, url, said)


@pytest.mark.parametrize("database", ["zero", "0x", "1/2", "-1", "1.0", "%31", "s3cret"])
@APIS
def test_a_database_is_a_whole_number(limiter: type[RateLimiter], database: str) -> None:
    assert "s3cret" not in refused(limiter, f"redis://host/{database}", "database", "redis://host/0")


@STORES
def test_an_address_has_several_forms(store: type[RedisStore] | type[AsyncRedisStore]) -> None:
    addresses = {
        "redis://": "redis://localhost:6379/0",
        "redis://host/": "redis://host:6379/0",
        "redis://host/3/": "redis://host:6379/3",
        "redis://host/3?db=4": "redis://host:6379/4",
        "redis://:pw@/2": "redis://localhost:6379/2",
        "valkeys://h:1/2": "rediss://h:1/2",
        "rediss://h": "rediss://h:6379/0",
        "rediss+cluster://h:1,g": "rediss+cluster://h:1,g:6379",
        "rediss+sentinel://u:p@h,g:2/a%2Fb/3": "rediss+sentinel://h:26379,g:2/a/b/3",
        "unix://u@/p%20q?db=1": "unix:///p q",
    }
    for url, address in addresses.items():
        assert store.from_url(url).address == address


# The options

WRONG = [
    ("foo=1", "'foo'", "docs/redis.md"),
    ("socket_timout=1", "did you mean 'socket_timeout'?"),
    ("credential_provider=x", "'credential_provider'", "docs/redis.md"),
    ("host=h", "before the ?"),
    ("db=zero", "'db'", "whole number"),
    ("db=-1", "'db'", "whole number"),
    ("db=", "name=value"),
    ("db", "name=value"),
    ("db=1&db=2", "twice"),
    ("socket_timeout=soon", "'socket_timeout'", "seconds"),
    ("socket_timeout=0", "'socket_timeout'", "seconds"),
    ("socket_timeout=nan", "'socket_timeout'", "seconds"),
    ("socket_connect_timeout=inf", "'socket_connect_timeout'", "seconds"),
    ("socket_keepalive=flase", "'socket_keepalive'", "true or false"),
    ("decode_responses=maybe", "'decode_responses'", "true or false"),
    ("retry_on_timeout=2", "'retry_on_timeout'", "true or false"),
    ("retry_on_error=TimeoutError", "'retry_on_error'"),
    ("health_check_interval=-1", "'health_check_interval'", "at least 0"),
    ("max_connections=0", "'max_connections'", "at least 1"),
    ("socket_read_size=64k", "'socket_read_size'", "bytes"),
    ("protocol=4", "'protocol'", "2 or 3"),
    ("encoding=utf9", "'encoding'", "Python knows"),
    ("encoding_errors=lax", "'encoding_errors'", "Python knows"),
    ("client_name=two%20words", "'client_name'", "without spaces"),
    ("ssl_cert_reqs=none", "'ssl_cert_reqs'", "rediss://"),
    ("sentinel_password=x", "'sentinel_password'", "redis+sentinel://"),
]
WRONG_OF_TLS = [
    ("ssl_cert_reqs=requird", "'ssl_cert_reqs'", "none, optional or required"),
    ("ssl_check_hostname=flase", "'ssl_check_hostname'", "true or false"),
    ("ssl_cert_reqs=none&ssl_check_hostname=true", "'ssl_check_hostname'", "ssl_cert_reqs=none"),
    ("ssl_min_version=1.2", "'ssl_min_version'", "771"),
    ("ssl_ciphers=rot13", "'ssl_ciphers'", "cannot be used"),
    ("ssl_include_verify_flags=ALL", "'ssl_include_verify_flags'", "VerifyFlags"),
    ("ssl_ca_certs=/nowhere/at/all.pem", "'ssl_ca_certs'", "No such file"),
    ("ssl_ca_certs=/dev/null", "'ssl_ca_certs'", "PEM"),
    ("ssl_ca_data=x", "'ssl_ca_data'", "PEM"),
    ("ssl_certfile=/nowhere/at/all.pem", "'ssl_certfile'", "No such file"),
    ("ssl_keyfile=/nowhere/at/all.pem", "'ssl_keyfile'", "'ssl_certfile'"),
    ("socket_timeot=1", "'socket_timeout'"),
]


@APIS
@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        *(("redis://:s3cret@host", wrong) for wrong in WRONG),
        *(("unix://:s3cret@/socket", wrong) for wrong in WRONG if wrong[0] != "host=h"),
        *(("rediss://:s3cret@host/0", wrong) for wrong in WRONG_OF_TLS),
        *(("rediss+cluster://:s3cret@host", wrong) for wrong in WRONG_OF_TLS),
        *(("rediss+sentinel://:s3cret@host/service", wrong) for wrong in WRONG_OF_TLS),
        ("unix:///socket", ("socket_keepalive=true", "'socket_keepalive'", "unix://")),
        ("redis+cluster://h", ("retry=3", "'retry'")),
        ("redis+sentinel://h/s", ("sentinel_db=x", "'sentinel_db'", "whole number")),
        ("redis+sentinel://h/s", ("sentinel_foo=x", "'sentinel_foo'")),
        ("redis+sentinel://h/s", ("sentinel_ssl_cert_reqs=none", "'sentinel_ssl_cert_reqs'", "rediss://")),
    ],
)
def test_an_option_that_allows_no_connection_is_refused_by_name(
    limiter: type[RateLimiter], url: str, wrong: tuple[str, ...]
) -> None:
    option, *said = wrong
    message = refused(limiter, f"{url}?{option}", *said)
    assert "s3cret" not in message
    value = option.rpartition("=")[2]
    assert len(value) < 4 or value in ("none", "true") or value not in message


def test_an_option_that_a_client_of_clusters_would_drop_is_refused() -> None:
    refused(RateLimiter, "redis+cluster://h?health_check_interval=3", "'health_check_interval'", "for threads")
    refused(AsyncRateLimiter, "rediss+cluster://h?ssl_validate_ocsp=true", "'ssl_validate_ocsp'", "for tasks")


READ = [
    ("socket_keepalive=no", "socket_keepalive", False),
    ("socket_keepalive=off", "socket_keepalive", False),
    ("socket_keepalive=True", "socket_keepalive", True),
    ("decode_responses=false", "decode_responses", False),
    ("socket_timeout=0.5", "socket_timeout", 0.5),
    ("socket_read_size=1024", "socket_read_size", 1024),
    ("protocol=2", "protocol", 2),
    ("max_connections=7", "max_connections", 7),
    ("client_name=a%2Bb", "client_name", "a+b"),
    ("encoding=latin-1", "encoding", "iso8859-1"),
    ("ssl_cert_reqs=None", "ssl_cert_reqs", "none"),
    ("ssl_min_version=772", "ssl_min_version", ssl.TLSVersion.TLSv1_3),
    ("ssl_include_verify_flags=VERIFY_X509_STRICT", "ssl_include_verify_flags", [ssl.VerifyFlags.VERIFY_X509_STRICT]),
]


@pytest.mark.parametrize(("option", "name", "value"), READ)
def test_an_option_is_read_as_redis_py_wants_it(option: str, name: str, value: object) -> None:
    assert read_url(f"rediss://h?{option}").options[name] == value


def test_the_documents_list_all_options() -> None:
    text = (Path(__file__).parents[3] / "docs" / "redis.md").read_text()
    table = text.partition("| option ")[2].partition("\n\n")[0]
    named = {name for line in table.splitlines()[2:] for name in line.split("|")[1].replace("`", "").split()}
    assert named == set(OPTIONS)


# Where it is, in messages


def sentinels_client(host: str, service: str, **options: object) -> redis.Redis:
    manager: Any = redis.Sentinel  # type: ignore[attr-defined,unused-ignore]
    client: redis.Redis = manager([(host, 1)]).master_for(service, **options)
    return client


def test_a_client_that_speaks_tls_is_shown_as_such() -> None:
    assert client_address(redis.Redis(host="h", ssl=True)) == "rediss://h:6379/0"
    assert client_address(redis.asyncio.Redis(host="h", ssl=True)) == "rediss://h:6379/0"
    assert client_address(redis.Redis(host="h")) == "redis://h:6379/0"
    assert client_address(sentinels_client("h", "s", ssl=True)) == "rediss+sentinel://h:1/s/0"
    assert client_address(redis.asyncio.RedisCluster(host="h", ssl=True)) == "rediss+cluster://h:6379"
    assert client_address(redis.asyncio.RedisCluster(host="h")) == "redis+cluster://h:6379"


@pytest.mark.parametrize(
    "url",
    [
        "redis://[::1]:6379/0",
        "redis+cluster://[::1]:7000,[fe80::1]:7001",
        "redis+sentinel://[2001:db8::1]:26379,h:1/mine/0",
    ],
)
def test_an_address_of_ipv6_is_shown_as_a_url_has_it(url: str) -> None:
    assert str(read_url(url)) == url


def test_a_url_in_the_place_of_a_host_shows_no_password() -> None:
    client = redis.Redis(host="redis://:s3cret@host")
    assert "s3cret" not in client_address(client)
    assert "s3cret" not in client_address(sentinels_client("rediss://:s3cret@host", "s"))
    assert "s3cret" not in client_address(sentinels_client("h", "redis://:s3cret@host"))


# A spend tells until when its caller waits, by a server's clock of which answers alone tell


WITHIN = 0.05
HOUR = 3600.0
QUICK = 0.001
"""How long (s) a call takes there, and its answer back."""


class Wire:
    """A server, whose clock is `ahead` (s) of the one here, and the way there and back."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._now, self.ahead, self._script = 1000.0, 1e9, SpendScript("p", "", ServerClocks())
        patch.setattr(scripts, "time", SimpleNamespace(monotonic=lambda: self._now))

    def is_charged(self, there: float = QUICK, back: float = QUICK) -> bool:
        """Whether the script charges a spend that takes so long on its way; its answer is read then."""
        groups, sent = [[Spend("k", Quota.parse("9/s"), 1)]], self._now
        _, _, (_, latest, *_) = self._script.call(groups, False, WITHIN, "")
        self._now += there
        clock = int((self._now + self.ahead) * 1e6)
        self._now += back
        self._script.read([-1, clock, 1, 0, 1, 8000], groups, "", sent)
        return not latest or clock < int(latest)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    return Wire(monkeypatch)


def test_a_server_that_stood_still_charges_nothing(wire: Wire) -> None:
    assert wire.is_charged()
    assert not wire.is_charged(there=2 * WITHIN)
    assert wire.is_charged()


def test_a_call_that_came_there_late_tells_nothing_new(wire: Wire) -> None:
    assert wire.is_charged()
    assert wire.is_charged(there=WITHIN)
    assert not wire.is_charged(there=1.5 * WITHIN)


def test_a_busy_process_that_reads_its_answers_late_is_charged(wire: Wire) -> None:
    """Each of its spends was refused, and its key had to lease."""
    assert all(wire.is_charged(back=2 * WITHIN) for _ in range(3))
    assert not wire.is_charged(there=2 * WITHIN)


def test_a_server_that_stood_still_at_the_first_call_says_the_next_time_what_its_clock_is(wire: Wire) -> None:
    assert wire.is_charged(there=HOUR)
    assert wire.is_charged()
    assert not wire.is_charged(there=2 * WITHIN)


def test_one_call_after_a_clock_was_set_knows_the_other_time(wire: Wire) -> None:
    """So it is where another server took over."""
    assert wire.is_charged()
    wire.ahead += HOUR
    assert not wire.is_charged()
    assert wire.is_charged()
    wire.ahead -= 2 * HOUR
    assert wire.is_charged()
    assert wire.is_charged()
    assert not wire.is_charged(there=2 * WITHIN)
