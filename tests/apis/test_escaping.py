"""What a stranger chose stands escaped in errors, in explanations for people and in the log."""

import logging
from collections.abc import Callable

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from batchlimit import ConcurrencyLimited, Quota, RateLimited, RateLimiter
from batchlimit.base.redaction import escaped
from batchlimit.errors import PermitLost
from batchlimit.events import log_event, show_keys
from batchlimit.rules import Request, Rule, Rules
from batchlimit.stores.client.diagnosis import failure
from tests.hostile import HOSTILE, obeyed

RULES = Rules([Rule("user", "5/s", key="user:{user}"), Rule("item", "5/s", key="item:{id}", match="/items/{id}")])


@given(st.text())
def test_what_is_escaped_is_one_printable_line_and_printable_text_stays(text: str) -> None:
    assert escaped(text).isprintable()
    assert escaped(escaped(text)) == escaped(text)
    assert escaped(text) == text or not text.isprintable()


def of_error(make: Callable[[str], object]) -> Callable[[str], str]:
    def told(text: str) -> str:
        with pytest.raises((ValueError, TypeError, LookupError)) as error:
            make(text)
        return str(error.value)

    return told


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
@pytest.mark.parametrize(
    "told",
    [
        lambda text: str(RateLimited(text, 1.0)),
        lambda text: str(ConcurrencyLimited("limit", 1.0, limit=1, in_flight=1, key=text)),
        lambda text: str(PermitLost(text, 7)),
        lambda text: str(failure(redis.ResponseError(text), "redis://h")),
        lambda text: str(RULES.explain(Request(text, f"/items/{text}", {"user": text}))),
        lambda text: str(RateLimiter.from_url("memory://", "5/s").rules.explain(text)),
        lambda text: str(RULES.applicable(Request("GET", "/", {"user": [text]})).unmade[0].reason),
        of_error(Quota.parse),
        of_error(lambda text: RateLimiter.from_url(text, "5/s")),
        of_error(lambda text: RateLimiter.from_url("memory://", {text: "5/furlong"})),
        of_error(RULES.asked),
        of_error(lambda text: Rule(text + " ", "5/s", key="all")),
        of_error(lambda text: Rule("x", "5/s", key=f"{{{text}}}")),
        of_error(lambda text: Rule("x", "5/s", key="all", match=f"x{text}")),
        of_error(lambda text: Rules.loads(f"rules: [{{name: x{text}, ", format="yaml", source=text)),
        of_error(lambda text: Rules.loads(f"rules = [{{name = '''x{text}''', ", format="toml", source=text)),
    ],
)
def test_errors_and_explanations_are_printed_escaped(told: Callable[[str], str], text: str) -> None:
    assert obeyed(told(text)) == set()


class Odd:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_a_message_of_the_log_is_one_line_that_a_terminal_does_not_obey(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "batchlimit"):
        show_keys()
        try:
            for argument in (text, ValueError(text), Odd(text)):
                log_event("tokens.not_returned", "%s %r %d", argument, argument, 7, key=text, reason=text)
        finally:
            show_keys(False)
    for record in caplog.records:
        assert record.getMessage().endswith(" 7")
        fields = [value for name, value in vars(record).items() if name.startswith("batchlimit_")]
        assert [each for each in (record.getMessage(), *fields) if not each.isprintable()] == []
