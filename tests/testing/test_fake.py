"""A fake limiter does as it is told, on both APIs, and tells what it was asked."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from batchlimit import AsyncRateLimiter, RateLimited, RateLimiter, StoreUnavailable
from batchlimit.testing import fake_async_limiter, fake_limiter, frozen_limits, limiting_off
from tests.apis.blocking import Blocking
from tests.depth import depth
from tests.testing.suites import passed


def for_threads(*args: Any, **options: Any) -> Blocking:
    limiter = Blocking.__new__(Blocking)
    limiter._use(fake_async_limiter(*args, **options))
    return limiter


@pytest.fixture(params=[fake_limiter, for_threads], ids=["threads", "tasks"])
def fake(request: pytest.FixtureRequest) -> Any:
    """Makes a fake limiter of one API, which is asked as threads do."""
    return request.param


def test_it_is_a_limiter_that_admits_whatever_it_is_asked(fake: Any) -> None:
    limiter = fake("5/hour")
    assert isinstance(getattr(limiter, "_inner", limiter), RateLimiter | AsyncRateLimiter)
    assert all(limiter.try_acquire("ann") for _ in range(20))
    limiter.acquire("ann", 3)
    assert limiter.decide("ann").remaining == 5
    assert limiter.script.calls == [("ann", 1)] * 20 + [("ann", 3), ("ann", 1)]


def test_it_refuses_what_it_is_told_to_until_it_is_told_otherwise(fake: Any) -> None:
    limiter = fake(refuses={"search:*": 30.0})
    assert (limiter.try_acquire("search:ann"), limiter.try_acquire("mail:ann")) == (False, True)
    with pytest.raises(RateLimited) as refusal:
        limiter.acquire("search:ann", timeout=29)
    assert refusal.value.retry_after == 30.0
    limiter.acquire("search:ann", timeout=30)
    limiter.script.admit("search:*")
    assert limiter.try_acquire("search:ann")
    limiter.script.refuse("mail:ann", 5.0)
    assert limiter.decide("mail:ann").retry_after == 5.0


def test_it_fails_as_it_is_told(fake: Any) -> None:
    limiter = fake(fails=["ann"])
    assert not limiter.try_acquire("ann")
    with pytest.raises(StoreUnavailable):
        limiter.peek("ann")
    with pytest.raises(StoreUnavailable) as failure:
        limiter.acquire("ann")
    assert failure.value.key == "ann"


def test_several_keys_are_refused_by_the_one_that_is(fake: Any) -> None:
    limiter = fake(refuses={"b": 1.0})
    limiter.acquire_all({"a": 1, "c": 2})
    assert set(limiter.decide_all({"a": 1, "b": 2})) == {"b"}
    with pytest.raises(RateLimited, match="b"):
        limiter.acquire_all({"a": 1, "b": 2}, timeout=0)


def test_it_notes_refunds_and_what_is_settled(fake: Any) -> None:
    limiter = fake()
    limiter.refund("ann", 2)
    with limiter.reserve("ann", 5) as reservation:
        reservation.settle(2)
    assert limiter.script.refunds == [("ann", 2), ("ann", 3)]


def test_a_wrong_argument_raises_as_ever(fake: Any) -> None:
    limiter = fake({"ann": "5/hour"})
    with pytest.raises(ValueError, match="no quota"):
        limiter.try_acquire("bob")
    with pytest.raises(ValueError, match="never fit"):
        limiter.acquire("ann", 6)
    with pytest.raises(TypeError):
        limiter.acquire("ann", timeout="soon")


def test_a_decorated_function_is_refused() -> None:
    limiter = fake_limiter(refuses={"user:ann": 30.0})

    @limiter.limit("user:{user}", timeout=1.0)
    def call(user: str) -> str:
        return user

    @limiter.limit("user:{user}", timeout=1.0)
    async def call_in_loop(user: str) -> str:
        return user

    assert call("bob") == asyncio.run(call_in_loop("bob")) == "bob"
    with pytest.raises(RateLimited):
        call("ann")
    with pytest.raises(RateLimited):
        asyncio.run(call_in_loop("ann"))


def test_frozen_time_and_a_switch_do_not_concern_it() -> None:
    limiter = fake_limiter(refuses={"ann": 30.0})
    with frozen_limits(), limiting_off():
        assert not limiter.try_acquire("ann")
    assert not limiter.try_acquire("ann")
    with frozen_limits():
        assert not fake_limiter(refuses={"ann": 30.0}).try_acquire("ann")


async def test_a_handle_of_a_key_does_as_it_is_told_too() -> None:
    limiter, of_tasks = fake_limiter(refuses={"ann": 30.0}), fake_async_limiter(refuses={"ann": 30.0})
    assert [limiter.bucket(key).try_acquire() for key in ("bob", "ann")] == [True, False]
    assert [await of_tasks.bucket(key).try_acquire() for key in ("bob", "ann")] == [True, False]
    assert limiter.script.calls == of_tasks.script.calls == [("bob", 1), ("ann", 1)]


def test_a_key_that_is_no_text_is_told_as_the_limiter_tells_it() -> None:
    with pytest.raises(TypeError, match="a key must be a str"):
        fake_limiter().acquire([])  # type: ignore[arg-type]


# Every example of the page about testing runs, as a test file of a user


_PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "testing.md"
_BLOCKS = re.findall(r"```python\n(.*?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_examples_of_the_page_pass(tmp_path: Path) -> None:
    blocks = _BLOCKS[1:]  # the first is part of a suite of an example
    for number, block in enumerate(blocks):
        (tmp_path / f"test_{number}.py").write_text(block, encoding="utf-8")
    said = passed(tmp_path, "-q", "-W", "error", str(tmp_path))
    assert int(re.findall(r"(\d+) passed", said)[0]) >= len(blocks)


def test_the_page_names_every_public_name() -> None:
    from batchlimit import testing

    text = _PAGE.read_text(encoding="utf-8")
    told = {"AsyncFakeLimiter", "FakeLimiter", "Script", "fresh_prefix"}  # those that others make or stand for
    assert [name for name in testing.__all__ if name not in text and name not in told] == []


# The suites of the examples run as users run theirs: in random order, on no server; with --deep on four workers


_ROOT = Path(__file__).parents[2]
TESTS = "examples/tests"


@pytest.mark.parametrize("seed", range(depth(1, 10)))
def test_the_suites_of_the_examples_pass_in_any_order(seed: int) -> None:
    passed(_ROOT, "-o", "addopts=", "-n", f"{depth(0, 4)}", "--import-mode=importlib", f"--randomly-seed={seed}", TESTS)


def test_every_example_has_a_suite() -> None:
    examples = {path.stem for path in (_ROOT / "examples").glob("*.py")}
    assert {path.stem for path in (_ROOT / "examples" / "tests").glob("test_*.py")} == {f"test_{e}" for e in examples}
