"""What cannot be set is refused at once, with the value in the message."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from batchlimit.base.redaction import shown
from batchlimit.concurrency.laws import (
    AIMD,
    Fixed,
    Gitaly,
    Gradient,
    Gradient2,
    PercentileWindow,
    Periodic,
    Settable,
    Tumbling,
    Vegas,
    Windowed,
    p95,
)


def windowed(**given: Any) -> Windowed:
    return Windowed(Fixed(1), **given)


def periodic(**given: Any) -> Periodic:
    return Periodic(Fixed(1), **given)


def tumbling(**given: Any) -> Tumbling:
    return Tumbling(Fixed(1), **given)


def aimd(*, timeout: Any = 1.0, **given: Any) -> AIMD:
    return AIMD(timeout=timeout, **given)


def percentile(*, part: Any = 0.5, capacity: Any = 10) -> PercentileWindow:
    return PercentileWindow(part, capacity)


COUNTS: list[tuple[Callable[..., object], str]] = [
    *[(law, name) for law in (aimd, Gradient, Gradient2, Gitaly) for name in ("initial", "minimum", "maximum")],
    *[(Vegas, name) for name in ("initial", "maximum", "probe_multiplier")],
    *[(Gradient2, name) for name in ("long_window", "warmup")],
    (Gradient, "probe_interval"),
    (windowed, "window_size"),
    (periodic, "last"),
    (tumbling, "calls"),
    (percentile, "capacity"),
]
MEASURES: list[tuple[Callable[..., object], str]] = [
    (Vegas, "alpha"),
    (Vegas, "beta"),
    (Vegas, "threshold"),
    (Gradient, "queue_size"),
    (Gradient2, "queue_size"),
]
RATIOS: list[tuple[Callable[..., object], str, float]] = [
    *[(aimd, "backoff_ratio", value) for value in (0.49, 1.0)],
    *[(Gradient, "backoff_ratio", value) for value in (0.49, 1.01)],
    *[(law, "smoothing", value) for law in (Vegas, Gradient, Gradient2) for value in (0.0, 1.01)],
    *[(law, "tolerance", value) for law in (Gradient, Gradient2) for value in (0.99, 10**400)],
    *[(Gitaly, "factor", value) for value in (0.0, 1.0)],
    *[(percentile, "part", value) for value in (0.0, 1.0)],
]
SECONDS: list[tuple[Callable[..., object], str, float]] = [
    *[(aimd, "timeout", value) for value in (0, 1e-10)],
    *[(periodic, "every", value) for value in (0, 1e-10)],
    *[(windowed, name, 0.09) for name in ("min_window", "max_window")],
    (windowed, "min_rtt", -1e-9),
]
NUMBERS = sorted({(build, name) for build, name, _ in RATIOS + SECONDS}, key=str)
FUNCTIONS: list[tuple[Callable[..., object], str]] = [
    *[(Vegas, name) for name in ("increase", "decrease", "jitter")],
    *[(law, "statistic") for law in (periodic, tumbling)],
    (Gradient, "jitter"),
]


@pytest.mark.parametrize(("build", "name"), COUNTS)
@pytest.mark.parametrize("value", [0, -1, 2**31])
def test_a_count_is_at_least_one(build: Callable[..., object], name: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be from \d+ to 2147483647, not {value}$"):
        build(**{name: value})


@pytest.mark.parametrize(("build", "name"), COUNTS + MEASURES)
@pytest.mark.parametrize("value", [20.0, "20", True, math.nan])
def test_a_count_is_a_whole_number(build: Callable[..., object], name: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"^{name} must be a whole number, not {value!r}$"):
        build(**{name: value})


@pytest.mark.parametrize(("build", "name"), MEASURES)
def test_what_may_wait_is_at_least_nothing(build: Callable[..., object], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be from 0 to 2147483647, not -1"):
        build(**{name: -1})
    build(**{name: 0})


@pytest.mark.parametrize(("build", "name", "value"), RATIOS + SECONDS)
def test_a_number_is_within_its_bounds(build: Callable[..., object], name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be .*, not {re.escape(shown(value))}$"):
        build(**{name: value})


@pytest.mark.parametrize(("build", "name"), NUMBERS)
@pytest.mark.parametrize("value", [-1, -0.5, math.nan, math.inf, 1e300 * 1e9, -(10**400), 10**400])
def test_a_number_is_finite_and_not_negative(build: Callable[..., object], name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be .*, not {re.escape(shown(value))}$"):
        build(**{name: value})


@pytest.mark.parametrize(("build", "name"), NUMBERS)
@pytest.mark.parametrize("value", ["0.9", None, False])
def test_a_number_is_a_number(build: Callable[..., object], name: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"^{name} must be a number, not {value!r}$"):
        build(**{name: value})


@pytest.mark.parametrize(("build", "name"), FUNCTIONS)
def test_a_function_is_a_function(build: Callable[..., object], name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name} must be a function, not 0.95$"):
        build(**{name: 0.95})


@pytest.mark.parametrize("build", [aimd, Gradient, Gradient2, Gitaly])
def test_the_minimum_is_not_above_the_maximum(build: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match="minimum must not be above maximum, but 31 > 30"):
        build(initial=30, minimum=31, maximum=30)
    build(initial=30, minimum=30, maximum=30)


@pytest.mark.parametrize("initial", [4, 21])
def test_gitaly_begins_within_its_bounds(initial: int) -> None:
    with pytest.raises(ValueError, match=f"initial must be from minimum to maximum, 5 to 20, not {initial}"):
        Gitaly(initial=initial, minimum=5, maximum=20)


def test_a_shortest_window_is_not_longer_than_the_longest() -> None:
    with pytest.raises(ValueError, match="min_window must not be above max_window, but 2 > 1"):
        windowed(min_window=2)


def test_a_window_that_is_never_ready_is_refused() -> None:
    with pytest.raises(ValueError, match="a window that holds 9 is never of 10: <PercentileWindow of 0: p95>"):
        windowed(window=PercentileWindow(0.95, 9))
    windowed(window=PercentileWindow(0.95, 10))


@pytest.mark.parametrize("size", [0, 9])
def test_a_window_is_of_ten_calls_at_least(size: int) -> None:
    with pytest.raises(ValueError, match=f"window_size must be from 10 to 2147483647, not {size}"):
        windowed(window_size=size)


@pytest.mark.parametrize("build", [Fixed, Settable, lambda limit: Settable(1).set_limit(limit)])
def test_a_limit_is_a_whole_number_of_calls(build: Callable[[Any], object]) -> None:
    for wrong in (0, -1):
        with pytest.raises(ValueError, match=f"at least 1, not {wrong}"):
            build(wrong)
    for odd in (1.0, True, "1", None):
        with pytest.raises(TypeError, match=f"a whole number, not {odd!r}"):
            build(odd)


def test_the_ends_of_the_ranges_are_allowed() -> None:
    AIMD(backoff_ratio=0.5, timeout=1e-9, initial=2**31 - 1, minimum=1, maximum=2**31 - 1)
    AIMD(timeout=9_007_199)
    Gradient(backoff_ratio=1, tolerance=1, smoothing=1, probe_interval=1)
    Gradient2(tolerance=1.0, smoothing=1e-9, long_window=1, warmup=1)
    Vegas(smoothing=1, probe_multiplier=1)
    windowed(min_window=0.1, max_window=0.1, min_rtt=0)
    periodic(every=1e-9, last=1, statistic=p95)
    percentile(part=1e-9, capacity=1)
