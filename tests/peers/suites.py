"""What of the suites of peers is run over batchlimit, and which of their tests fail there, each for a reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tests.peers import reasons as why
from tests.peers.fetched import Run


@dataclass(frozen=True)
class Suite:
    """The tests of a package, and what came of them.

    Args:
        package: its name on the package index.
        version: the one that was published last, in November 2026.
        needs: packages that its tests import, and no other test here.
        port: of the Redis that its tests name; 0 for none.
        runs: what is run.
        face: what stands for the package, in words.
        left_out: what is not run, and why.
        passed: how many tests pass.
        skipped: how many tests are skipped.
        failing: the tests that fail, by reason.
        kind: what tells it from another suite of the package, on the page.
        archive: where the tests are, if the package has none: a commit of its repository.
    """

    package: str
    version: str
    needs: Sequence[str]
    port: int
    runs: Sequence[Run]
    face: str
    left_out: str
    passed: int
    skipped: int
    failing: Mapping[str, Sequence[str]]
    kind: str = ""
    archive: str = ""

    def __str__(self) -> str:
        return f"{self.package}{self.kind}"


_PLUGINS = ["-p", "pytest_asyncio.plugin", "-p", "pytest_lazy_fixtures.plugin", "-o", "asyncio_mode=auto"]
_STRATEGIES = ["tests/test_strategy.py", "tests/aio/test_strategy.py", "tests/integration"]

_STEADY = "not total_reset and not (TestAsyncConcurrency and sliding_window)"
_STEADY += " and not (TestAsyncSlidingWindow and sliding_window_counter_stats)"
_STORAGES = {
    "test_strategy.Test": ("[in-memory]", "[redis_basic]"),
    "aio.test_strategy.TestAsync": ("[in-memory]", "[redis]"),
}


def _by_storage(*tests: str) -> list[str]:
    """Return the names of tests for threads and for tasks, in memory and on Redis."""
    return [f"{where}{test}{storage}" for where, both in _STORAGES.items() for storage in both for test in tests]


LIMITS = Suite(
    "limits",
    "5.8.0",
    needs=["pytest-asyncio", "pytest-lazy-fixtures", "pymemcache", "pymongo", "dnspython"],
    port=7379,
    runs=[
        Run(["-p", "virtual_time", "-p", "of_limits", *_PLUGINS, "-m", "memory", *_STRATEGIES], {}),
        Run(["-p", "of_limits", "tests/test_ratelimit_parser.py"], {}),
        Run(
            # Tests that compare within 10 ms of real time, or ask first 100 times at once, say how busy the machine is.
            ["-p", "of_limits", *_PLUGINS, "-m", "redis", "-k", _STEADY, *_STRATEGIES],
            {"ASYNC_REDIS_IMPLEMENTATION": "redispy"},
        ),
    ],
    face="its three strategies, for threads and for tasks, in memory and on Redis, and `parse`",
    left_out="its storages themselves, and memcached, MongoDB, clusters; 4 tests that count on a fast machine",
    passed=65,
    skipped=0,
    failing={
        why.BUCKET: _by_storage(
            "FixedWindow.test_fixed_window",
            "MovingWindow.test_moving_window",
            "MovingWindow.test_moving_window_huge_cost",
            "MovingWindow.test_moving_window_multiple_cost",
            "SlidingWindow.test_sliding_window_counter",
        ),
        why.TOLD: [
            *_by_storage("SlidingWindow.test_sliding_window_counter_previous_window"),
            "aio.test_strategy.TestAsyncSlidingWindow.test_sliding_window_counter_stats[in-memory]",
        ],
        why.UNITS: ["test_ratelimit_parser.TestRatelimitParser.test_singles"],
        why.COMMAS: ["test_ratelimit_parser.TestRatelimitParser.test_parse_many_csv"],
    },
)
_CHECKED = ["-p", "pytest_check.plugin", "-p", "pytest_mock", "-p", "of_limits"]
FLASK_LIMITER = Suite(
    "flask-limiter",
    "4.1.1",
    needs=[
        *("hiro", "pytest-check", "pytest-mock", "pymemcache", "pymongo", "dnspython"),
        *("flask-restful", "aniso8601", "pytz", "six"),
    ],
    port=46379,
    runs=[
        # The test that is left out has to ask within the 200 ms in which a bucket of 5/s is empty.
        Run([*_CHECKED, "-k", "not clear_limits or no_extension", "tests"], {})
    ],
    face="the strategies and `parse` of limits below it",
    left_out="memcached, MongoDB, and a test that counts on a fast machine",
    passed=105,
    skipped=7,
    failing={
        why.BUCKET: [
            "test_decorators.test_decorated_dynamic_limits",
            "test_flask_ext.test_multiple_apps",
            "test_flask_ext.test_multiple_instances_no_key_prefix",
            "test_flask_ext.test_multiple_limiters_default_limits",
            "test_flask_ext.test_headers_breach",
            "test_flask_ext.test_custom_headers_from_config",
        ],
        why.TOLD: ["test_flask_ext.test_headers_no_breach", "test_flask_ext.test_headers_application_limits"],
        why.COMMAS: [
            "test_views.test_pluggable_views",
            "test_views.test_pluggable_method_views",
            "test_views.test_flask_restful_resource",
        ],
        why.SEC: [
            "test_blueprints.test_invalid_decorated_static_limit_blueprint",
            "test_blueprints.test_invalid_decorated_dynamic_limits_blueprint",
            "test_decorators.test_invalid_decorated_static_limits",
            "test_decorators.test_invalid_decorated_dynamic_limits",
        ],
        why.REDIS_PY: [
            "test_error_handling.test_fallback_to_memory",
            "test_error_handling.test_fallback_to_memory_with_global_override",
        ],
    },
)
FLASK_LIMITER_FACE = replace(
    FLASK_LIMITER,
    runs=[Run([*_CHECKED, "-p", "of_flask_limiter", "--ignore=tests/test_commands.py", "tests"], {})],
    face="its `Limiter`: rules of the routes, and `Limits`",
    left_out="memcached, MongoDB, and its commands",
    passed=71,
    failing={
        why.BUCKET: [
            "test_decorators.test_decorated_dynamic_limits",
            "test_flask_ext.test_multiple_apps",
            "test_flask_ext.test_headers_breach",
            "test_flask_ext.test_custom_headers_from_config",
        ],
        why.TOLD: FLASK_LIMITER.failing[why.TOLD],
        why.COMMAS: FLASK_LIMITER.failing[why.COMMAS],
        why.SEC: FLASK_LIMITER.failing[why.SEC],
        why.REFUSAL: [
            "test_decorators.test_exempt_routes",
            "test_flask_ext.test_no_fail_on_first_breach",
            "test_regressions.test_application_limits_from_config",
            "test_regressions.test_default_limits_with_per_route_limit",
        ],
        why.META: [
            "test_configuration.test_constructor_arguments_over_config",
            "test_decorators.test_decorated_limit_with_meta_limit",
            "test_flask_ext.test_meta_limits",
            "test_flask_ext.test_custom_meta_limits",
        ],
        why.ONE: [
            "test_flask_ext.test_independent_instances_by_key_prefix",
            "test_flask_ext.test_multiple_instances_no_key_prefix",
            "test_flask_ext.test_multiple_limiters_default_limits",
        ],
        why.BROKEN: [
            "test_error_handling.test_fallback_to_memory",
            "test_error_handling.test_fallback_to_memory_with_global_override",
            "test_error_handling.test_no_swallow_error",
            "test_error_handling.test_no_swallow_error_conditional_deduction",
            "test_error_handling.test_swallow_error",
        ],
        why.FALLBACK: ["test_error_handling.test_fallback_to_memory_backoff_check"],
        why.LATER: [
            "test_decorators.test_decorated_limit_immediate",
            "test_decorators.test_decorated_shared_limit_immediate",
        ],
        why.CHARGED: [
            "test_regressions.test_redis_request_slower_than_fixed_window",
            "test_regressions.test_redis_request_slower_than_moving_window",
        ],
        why.TOLD_FIRST: ["test_decorators.test_header_ordering_with_conditional_deductions"],
        why.JUMPS: ["test_decorators.test_decorated_limit_with_conditional_deduction"],
        why.HINTED: ["test_decorators.test_non_route_decoration_static_limits_override_defaults"],
        why.COUNTED: ["test_flask_ext.test_logging", "test_flask_ext.test_reuse_logging"],
        why.DECIDED: ["test_flask_ext.test_fail_on_first_breach"],
        why.ON_REFUSALS: ["test_flask_ext.test_retry_after"],
        why.OWN_FIELD: ["test_flask_ext.test_retry_after_exists_rfc1123"],
    },
    kind=", its public face",
)
DJANGO_RATELIMIT = Suite(
    "django-ratelimit",
    "4.1.0",
    needs=[],
    port=0,
    runs=[Run(["-p", "of_django_ratelimit", "django_ratelimit/tests.py"], {})],
    face="the counts and windows below its decorators, on Redis, and where Redis is away",
    left_out="",
    passed=49,
    skipped=0,
    failing={
        why.REFUSAL: ["django_ratelimit.tests.FunctionsTests.test_not_increment_after_increment"],
        "a look raises while the store is away, and theirs says that nobody is limited": [
            "django_ratelimit.tests.CacheFailTests.test_is_ratelimited_cache_connection_error_without_increment"
        ],
        "the cache of the test forgets at once, and Redis does not": [
            "django_ratelimit.tests.CacheFailTests.test_cache_timeout"
        ],
    },
)
_APPS = range(3)  # each test runs with three kinds of middleware


def _with_each(framework: str, *tests: str, styles: Sequence[str] = ("",)) -> list[str]:
    where = f"test_{framework}_extension.TestDecorators.test_"
    return [f"{where}{test}[build_{framework}_app{app}{style}]" for test in tests for app in _APPS for style in styles]


_KEY_STYLES = [
    *_with_each("fastapi", "key_style", styles=("-url", "-endpoint")),
    *_with_each("starlette", "key_style", styles=("-url", "-endpoint")),
]
_SLOWAPI = "https://github.com/laurentS/slowapi/archive/5e2b9c108f79471fc96a5152bb69774894660cd1.tar.gz"
SLOWAPI = Suite(
    "slowapi",
    "0.1.10",
    needs=["hiro", "mock", "six"],
    port=0,
    runs=[Run(["-p", "starlette_route", "-p", "of_limits", "tests"], {})],
    face="the strategies and `parse` of limits below it",
    left_out="",
    passed=79,
    skipped=0,
    failing={
        why.THEIRS: _with_each("starlette", "headers_breach", "headers_no_breach"),
        why.UNREAD: _KEY_STYLES,
        why.WHOLE: [*_with_each("fastapi", "callable_cost"), *_with_each("starlette", "callable_cost")],
    },
    archive=_SLOWAPI,
)
SLOWAPI_FACE = replace(
    SLOWAPI,
    runs=[Run(["-p", "starlette_route", "-p", "of_slowapi", "tests"], {})],
    face="its `Limiter` and both middlewares: rules of the routes, and `RateLimitMiddleware`",
    passed=52,
    failing={
        why.THEIRS: SLOWAPI.failing[why.THEIRS],
        why.UNREAD: _KEY_STYLES,
        why.WHOLE: _with_each("starlette", "callable_cost"),
        why.ON_REFUSALS: [
            *_with_each("fastapi", "single_decorator_with_headers", "single_decorator_not_response_with_headers"),
            *_with_each("starlette", "multiple_decorators_with_headers", "retry_after"),
        ],
        why.NO_ARGUMENT: _with_each(
            "fastapi",
            "endpoint_missing_request_param",
            "endpoint_missing_request_param_sync",
            "endpoint_request_param_invalid",
            "endpoint_request_param_invalid_sync",
            "endpoint_response_param_invalid",
            "endpoint_response_param_invalid_sync",
        ),
    },
    kind=", its public face",
)
SUITES = [LIMITS, FLASK_LIMITER, FLASK_LIMITER_FACE, DJANGO_RATELIMIT, SLOWAPI, SLOWAPI_FACE]
