"""Limits what clients of botocore and boto3 send."""

import io
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Unpack

from batchlimit.base.lazy import needed

with needed(__name__, "botocore"):
    from botocore.awsrequest import AWSPreparedRequest, AWSResponse
    from botocore.client import BaseClient
    from botocore.retries.standard import ThrottledRetryableChecker
    from urllib3.exceptions import HTTPError

from batchlimit import RateLimiter
from batchlimit.base.steps import run
from batchlimit.integrations.told import content
from batchlimit.integrations.upstream import Library, TransportTerms, Unsent, Upstream, outgoing_to

if TYPE_CHECKING:
    from batchlimit.integrations.outgoing_permit import OutgoingPermit

__all__ = ["limit_client"]

BAD_REQUEST = 400
_THROTTLED = frozenset(ThrottledRetryableChecker._THROTTLED_ERROR_CODES)  # noqa: SLF001  the list that its retries go by
_CODE = re.compile(rb'<Code>(\w+)|"(?:__type|code)"\s*:\s*"(?:[^"]*#)?(\w+)')


class _Nothing(io.BytesIO):
    """The body of a response that is made here: no protocol of AWS would read problem details."""

    def stream(self) -> list[bytes]:
        return []


def limit_client(
    client: BaseClient,
    limiter: RateLimiter,
    key: str | Callable[[AWSPreparedRequest], str] = "{host}",
    **terms: Unpack[TransportTerms],
) -> None:
    """Limit what a client of boto3 or botocore sends, over the whole fleet.

    It does what a LimitedTransport of `batchlimit.integrations.httpx` does, which says more. A call that is not sent is
    answered 503, which all protocols of AWS can tell. Each attempt of a client that retries is charged.

    Args:
        client: of botocore or boto3, such as `boto3.client("s3")`.
        limiter: a RateLimiter, which its owner closes.
        key, terms: as of LimitedTransport.

    Raises:
        ValueError, TypeError: an argument cannot work.

    Example:
        >>> import botocore.session
        >>> from batchlimit import RateLimiter
        >>> limiter = RateLimiter.from_url("memory://", {"bedrock-runtime.*": "10/s burst 5", "*": "100/s"})
        >>> client = botocore.session.get_session().create_client("bedrock-runtime", region_name="eu-central-1")
        >>> limit_client(client, limiter, wait=10)
    """
    upstream = Upstream(limiter, _LIBRARY, key, **terms)
    endpoint = client._endpoint  # noqa: SLF001  a handler of "before-send" would send what others answered
    session = endpoint.http_session  # its `send` may be replaced later, as tests do

    def send(request: AWSPreparedRequest) -> AWSResponse:
        return run(upstream.steps(request, lambda: session.send(request)))

    endpoint.http_session = SimpleNamespace(send=send, close=session.close)


def _answered(request: AWSPreparedRequest, answer: Unsent) -> AWSResponse:
    headers = {name: text for name, text in answer.headers.items() if not name.startswith("content-")}
    return AWSResponse(request.url, 503, headers, _Nothing())


def _hold(response: AWSResponse, permit: "OutgoingPermit") -> None:
    from batchlimit.concurrency import Outcome

    if response.status_code == BAD_REQUEST:
        try:
            codes = [each.decode() for pair in _CODE.findall(content(response)) for each in pair]
            codes.append(response.headers.get("x-amzn-errortype", "").partition(":")[0])
            if not _THROTTLED.isdisjoint(codes):  # in most of AWS's protocols only a code says that it was too many
                permit.outcome = Outcome.DROPPED
        except Exception as error:  # noqa: BLE001  its caller will see the same error
            permit.end(error)
    permit.hold_connection(response.raw, HTTPError)


_LIBRARY = Library(RateLimiter, outgoing_to, _answered, content, _hold, close=lambda response: response.raw.close())
