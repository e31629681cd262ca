"""The parser that the other tests read header fields with reads what the grammar allows, and nothing else."""

import pytest

from tests.integrations.structured import Item, Limit, Malformed, Token, parse_list, read_limits


@pytest.mark.parametrize(
    ("field", "items"),
    [
        (b"", []),
        (b'"a"', [Item("a", {})]),
        (b'  "a";q=5 ,\t"b";w=1;x', [Item("a", {"q": 5}), Item("b", {"w": 1, "x": True})]),
        (b'"a\\"b\\\\"', [Item('a"b\\', {})]),
        (b"tok/en;pk=:aGk=:", [Item(Token("tok/en"), {"pk": b"hi"})]),
        (b'"a";q=1;q=2', [Item("a", {"q": 2})]),
        (b"-12, 1.5, ?0", [Item(-12, {}), Item(1.5, {}), Item(False, {})]),
    ],
)
def test_the_parser_reads_lists(field: bytes, items: list[Item]) -> None:
    assert parse_list(field) == items


@pytest.mark.parametrize(
    "field",
    [b'"a",', b'"a" "b"', b'"a', b'"\\n"', b'"\xc3\xa4"', b"1234567890123456", b'"a";Q=1', b":a:b", b'"a"; =1', b","],
)
def test_the_parser_refuses_what_the_grammar_does_not_allow(field: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  Malformed, or of base64
        parse_list(field)


def test_limits_are_read_by_name() -> None:
    fields = {b"ratelimit-policy": b'"a";q=5;w=60;pk=:aGk=:, "b";q=1', b"ratelimit": b'"a";r=4;t=48;pk=:aGk=:'}
    assert read_limits(fields) == {"a": Limit(5, 60, 4, 48, b"hi"), "b": Limit(1, None, None, None, None)}


@pytest.mark.parametrize(
    ("policy", "limit"),
    [
        (b'"a";w=60', b""),
        (b'"a";q=-1', b""),
        (b'"a";q=1;w=0', b""),
        (b'"a";q=1.5', b""),
        (b"a;q=1", b""),
        (b'"a";q=1,"a";q=2', b""),
        (b'"a";q=1', b'"b";r=1'),
        (b'"a";q=1', b'"a";t=1'),
        (b'"a";q=1;pk=:aGk=:', b'"a";r=1'),
    ],
)
def test_limits_against_the_draft_are_refused(policy: bytes, limit: bytes) -> None:
    with pytest.raises(Malformed):
        read_limits({b"ratelimit-policy": policy, b"ratelimit": limit})
