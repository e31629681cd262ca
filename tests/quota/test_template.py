"""What a call is charged to: a key and a cost made of its arguments."""

from typing import Any

import pytest

from batchlimit.quota.template import Template, the_function


class Request:
    def __init__(self, host: str, tags: list[str]) -> None:
        self.host, self.tags = host, tags


def search(user: str, page: int = 1, *words: str, limit: int = 10, **rest: Any) -> None:
    """A function with parameters of all kinds."""


@pytest.mark.parametrize(
    ("key", "args", "kwargs", "expected"),
    [
        ("search", ("ann",), {}, "search"),
        ("search:{user}", ("ann",), {}, "search:ann"),
        ("search:{user}", (), {"user": "ann"}, "search:ann"),
        ("{user}:{page}", ("ann",), {}, "ann:1"),
        ("{user}:{page:03}", ("ann", 7), {}, "ann:007"),
        ("{user!r}", ("ann",), {}, "'ann'"),
        ("{limit}", ("ann",), {"limit": 5}, "5"),
        ("{words}", ("ann", 1, "a", "b"), {}, "('a', 'b')"),
        ("{tenant}", ("ann",), {"tenant": "t1"}, "t1"),
        ("{{literal}}:{user}", ("ann",), {}, "{literal}:ann"),
        ("{user.host}/{user.tags[1]}", (Request("h", ["a", "b"]),), {}, "h/b"),
        (lambda user, *_args, **_kwargs: user.upper(), ("ann",), {}, "ANN"),
    ],
)
def test_a_key_is_filled_with_the_arguments(
    key: Any, args: tuple[Any, ...], kwargs: dict[str, Any], expected: str
) -> None:
    assert Template(key, 1).of(search)(*args, **kwargs) == (expected, 1)


def test_a_cost_may_be_made_of_the_arguments() -> None:
    charged = Template("k", lambda user, page=1: len(user) * page).of(lambda user, page=1: None)
    assert charged("ann") == ("k", 3)
    assert charged("ann", page=4) == ("k", 12)


def test_a_method_has_its_object_among_its_arguments() -> None:
    class Service:
        tenant = "t1"

        def call(self, user: str) -> None: ...

    assert Template("{self.tenant}:{user}", 1).of(Service.call)(Service(), "ann") == ("t1:ann", 1)


def test_a_call_with_wrong_arguments_fails_before_it_is_charged() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'user'"):
        Template("{user}", 1).of(search)()


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("{nobody}", "names 'nobody', which is no parameter of"),
        ("{nobody.host}", "names 'nobody'"),
        ("{}", "must name a parameter; write {{ and }} for braces"),
        ("{0}", "must name a parameter"),
        ("{user:{width}}", "must not have fields within"),
        ("", "a key must not be empty"),
        ("{", "'{' cannot be filled: (Single '{' encountered|expected '}').*; write {{ and }}"),
    ],
)
def test_a_field_that_means_nothing_is_named_when_the_function_is_made(key: str, message: str) -> None:
    def function(user: str) -> None: ...

    with pytest.raises(ValueError, match=message):
        Template(key, 1).of(function)


def test_a_cost_below_zero_is_named_at_once() -> None:
    with pytest.raises(ValueError, match="cost must be at least 0 tokens, not -1"):
        Template("k", -1)


def test_a_keyword_that_a_key_names_must_be_there() -> None:
    with pytest.raises(TypeError, match=r"missing an argument that .* names: 'tenant'"):
        Template("{tenant}", 1).of(search)("ann")


@pytest.mark.parametrize("key", [None, 5, b"k"])
def test_a_key_is_a_text_or_a_function(key: Any) -> None:
    with pytest.raises(TypeError, match="a key must be a str or a function of the call's arguments, not"):
        Template(key, 1)


@pytest.mark.parametrize("cost", [None, 1.5, "1", True])
def test_a_cost_is_a_whole_number_or_a_function(cost: Any) -> None:
    with pytest.raises(TypeError, match="cost must be a whole number of tokens or a function of the"):
        Template("k", cost)


def test_a_block_has_no_arguments() -> None:
    assert Template("a:{{b}}", 3).alone() == ("a:{b}", 3)
    for template in (Template("{user}", 1), Template(lambda: "k", 1), Template("k", lambda: 1)):
        with pytest.raises(ValueError, match="needs a function's arguments: use it as a decorator"):
            template.alone()


def test_a_limit_above_classmethod_is_told_where_to_stand() -> None:
    with pytest.raises(TypeError, match="@classmethod stands above a limit"):
        the_function((classmethod(search),), {})  # type: ignore[arg-type]
