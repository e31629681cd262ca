"""A client of botocore that is limited: what is sent and what is not, in each of the protocols of AWS."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError

from batchlimit import RateLimiter
from batchlimit.concurrency import KeyedConcurrencyLimiter
from batchlimit.integrations.botocore import limit_client
from batchlimit.stores import MemoryStore
from batchlimit.testing import FaultStore
from tests.integrations.outgoing.test_outgoing import came_of
from tests.integrations.outgoing.upstream import Said, Upstream

Made = Callable[..., Any]
XML = {"content-type": "text/xml"}
IDENTITY = Said(
    200,
    XML,
    b'<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>'
    b"<Account>42</Account></GetCallerIdentityResult></GetCallerIdentityResponse>",
)
TABLES = Said(200, {"content-type": "application/x-amz-json-1.0"}, b'{"TableNames": ["one"]}')


@pytest.fixture
def make(server: Upstream) -> Iterator[Made]:
    """Makes clients, and closes them."""
    made: list[Any] = []

    def one(service: str = "s3", store: Any = None, quota: str = "1000/s", attempts: int = 1, **options: Any) -> Any:
        config = Config(
            retries={"total_max_attempts": attempts, "mode": "standard"}, s3={"addressing_style": "path"}, proxies={}
        )
        client = botocore.session.Session().create_client(
            service, "eu-central-1", endpoint_url=options.pop("url", server.url), config=config,
            aws_access_key_id="a", aws_secret_access_key="b",
        )  # fmt: skip
        client.limiter = RateLimiter(store or MemoryStore(), quota)
        limit_client(client, client.limiter, **options)
        made.append(client)
        return client

    yield one
    for each in made:
        each.close()


def _get(client: Any) -> bytes:
    body: bytes = client.get_object(Bucket="bucket", Key="key")["Body"].read()
    return body


def test_so_it_is_in_the_other_protocols(make: Made, server: Upstream) -> None:
    server.answers(TABLES, IDENTITY)
    assert make("dynamodb").list_tables()["TableNames"] == ["one"]
    assert make("sts").get_caller_identity()["Account"] == "42"


@pytest.mark.parametrize(
    ("service", "call"),
    [
        ("s3", _get),
        ("dynamodb", lambda client: client.list_tables()),
        ("sts", lambda client: client.get_caller_identity()),
        ("sqs", lambda client: client.list_queues()),
        ("lambda", lambda client: client.list_functions()),
    ],
)
@pytest.mark.parametrize("away", [False, True])
def test_one_that_would_wait_too_long_is_not_sent_and_is_an_error_of_the_service(
    make: Made, server: Upstream, service: str, call: Callable[[Any], Any], away: bool
) -> None:
    with pytest.raises(ClientError) as refused:
        call(make(service, FaultStore(down=away), quota="0/s", wait=0))
    told: Any = refused.value.response["ResponseMetadata"]
    assert (told["HTTPStatusCode"], told["HTTPHeaders"]["x-batchlimit"]) == (503, "not sent")
    assert server.asked == []


def test_what_upstream_says_pauses_its_key(make: Made, server: Upstream) -> None:
    server.answers(Said(503, {"retry-after": "60"} | XML, b"<Error><Code>SlowDown</Code></Error>"))
    client = make(wait=0)
    for code in ("SlowDown", "503"):
        with pytest.raises(ClientError) as refused:
            _get(client)
        assert refused.value.response["Error"]["Code"] == code
    assert 50 < client.limiter.decide("127.0.0.1").retry_after <= 60.1
    assert len(server.asked) == 1


JSON = {"content-type": "application/x-amz-json-1.0"}


@pytest.mark.parametrize(
    ("service", "call", "said"),
    [
        (
            "dynamodb",
            lambda client: client.list_tables(),
            Said(400, JSON, b'{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"}'),
        ),
        (
            "sts",
            lambda client: client.get_caller_identity(),
            Said(400, XML, b"<ErrorResponse><Error><Code>Throttling</Code></Error></ErrorResponse>"),
        ),
        (
            "lambda",
            lambda client: client.list_functions(),
            Said(400, {"x-amzn-errortype": "ThrottlingException:http://internal"}, b"{}"),
        ),
    ],
    ids=["json", "xml", "rest-json"],
)
def test_a_call_that_aws_throttles_by_an_error_code_is_a_drop_and_its_caller_gets_it_as_ever(
    make: Made, server: Upstream, service: str, call: Callable[[Any], Any], said: Said
) -> None:
    limits = KeyedConcurrencyLimiter({"*": 5})
    server.answers(said, said)
    clients = make(service, concurrency=limits), make(service)
    assert len({repr(came_of(partial(call, client))) for client in clients}) == 1
    counted = limits.statistics().patterns["*"]
    assert (counted.in_flight, counted.succeeded, counted.dropped) == (0, 0, 1)


@pytest.mark.parametrize(
    "body", [b'{"__type":"com.amazon.coral.validate#ValidationException"}', b"", b"{", [b'{"__t', None]]
)
def test_a_wrong_call_is_none(make: Made, server: Upstream, body: Any) -> None:
    limits = KeyedConcurrencyLimiter({"*": 5})
    server.answers(Said(400, JSON, body), Said(400, JSON, body))
    clients = make("dynamodb", concurrency=limits), make("dynamodb")
    assert len({repr(came_of(client.list_tables)) for client in clients}) == 1
    counted = limits.statistics().patterns["*"]
    assert (counted.in_flight, counted.dropped) == (0, 1 if isinstance(body, list) else 0)


def test_each_attempt_is_charged(make: Made, server: Upstream) -> None:
    server.answers(Said(500), Said(200))
    client = make(quota="1000/day", attempts=2)
    assert _get(client) == b"fine"
    assert client.limiter.peek("127.0.0.1").remaining == 998


def test_a_lost_connection_is_the_clients_own_error(make: Made) -> None:
    with pytest.raises(EndpointConnectionError):
        _get(make(url="http://127.0.0.1:1"))
