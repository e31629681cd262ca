"""A text of any kind is read, or refused by a RulesError."""

import contextlib
import pickle
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchlimit.rules import Request, Rule, Rules, RulesError, Statuses

Form = Literal["toml", "yaml"]
WORDS = [
    *"[]{}=:,#-*&!|>%@'\"\n\t ?.0\0\ufeff\ud800é",
    *("[[rules]]\n", "rules:\n", "- ", "  ", "name", "quota", "key", "match", "cost", "charge", "on_failure", "mode"),
    "replaces",
    *("name: a\n", "name = 'a'\n", "quota = '1/s'\n", "quota: 1/s\n", "key: k\n", "key = 'k'\n", "&a", "*a", "<<: "),
    *("2001-99-99", "1e999", "0x1f", "null", "true", "'''", '"""', "!!python/name:os.system", "!!binary ", "\r\n"),
]


@pytest.mark.parametrize("form", ["toml", "yaml"])
@given(st.lists(st.sampled_from(WORDS), max_size=30).map("".join))
@example("rules: &a [*a]")
@example("rules: &a {name: *a}")
@example("? [a]\n: b")
@example("rules:\n- 2001-99-99: 1")
@example("rules: " + "9" * 5000)
@example("a = " + "9" * 5000)
@example("a = " + "[" * 5000)
@example("[" * 5000)
@example("rules: !!python/name:os.system ")
def test_no_text_raises_anything_else(form: Form, text: str) -> None:
    with contextlib.suppress(RulesError):
        assert len(Rules.loads(text, format=form))


def test_rules_and_their_errors_travel_between_processes() -> None:
    rules = Rules([Rule("a", "1/s", key="k:{ip}", match="/{x}/*", charge=Statuses(401), on_failure="open")])
    copy = pickle.loads(pickle.dumps(rules))
    assert list(copy) == list(rules)
    request = Request("GET", "/x/y", {"ip": "203.0.113.9"})
    assert copy.applicable(request) == rules.applicable(request)
    error = RulesError("no", source="f", rule="a", field="key", line=2, column=3)
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "f:2:3: rule 'a': no"
