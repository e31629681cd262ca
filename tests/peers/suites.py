"""What of the suites of peers is run over batchlimit, and which of their tests fail there, each for a reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tests.peers.fetched import Run

BUCKET = "a bucket refills all the time, so some requests are admitted before the window ends, and fewer right after it"
TOLD = "the reset that is told is when the bucket is full, not when a window ends"
UNITS = "`month` has no length; the error says to write `30d`"
COMMAS = "a quota has `;` between its parts; the error says so"
SEC = "`2/sec` is no limit there, and is one here"
THEIRS = "it fails for slowapi itself as well"
UNREAD = "the test reads the storage of limits, after answers that are as it expects"
WHOLE = "a cost is a whole number of tokens, and this one is 7.5"
ON_REFUSALS = "`Retry-After` stands on refusals alone, and theirs on each response"
NO_ARGUMENT = "a route needs no `request` and no `response`, so nothing is wrong without them"
REDIS_PY = "the test breaks a method of redis-py that is not called here, so the store is not away"


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
        BUCKET: _by_storage(
            "FixedWindow.test_fixed_window",
            "MovingWindow.test_moving_window",
            "MovingWindow.test_moving_window_huge_cost",
            "MovingWindow.test_moving_window_multiple_cost",
            "SlidingWindow.test_sliding_window_counter",
        ),
        TOLD: [
            *_by_storage("SlidingWindow.test_sliding_window_counter_previous_window"),
            "aio.test_strategy.TestAsyncSlidingWindow.test_sliding_window_counter_stats[in-memory]",
        ],
        UNITS: ["test_ratelimit_parser.TestRatelimitParser.test_singles"],
        COMMAS: ["test_ratelimit_parser.TestRatelimitParser.test_parse_many_csv"],
    },
)
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
        Run(
            [
                "-p",
                "pytest_check.plugin",
                "-p",
                "pytest_mock",
                "-p",
                "of_limits",
                "-k",
                "not clear_limits or no_extension",
                "tests",
            ],
            {},
        )
    ],
    face="the strategies and `parse` of limits below it",
    left_out="memcached, MongoDB, and a test that counts on a fast machine",
    passed=105,
    skipped=7,
    failing={
        BUCKET: [
            "test_decorators.test_decorated_dynamic_limits",
            "test_flask_ext.test_multiple_apps",
            "test_flask_ext.test_multiple_instances_no_key_prefix",
            "test_flask_ext.test_multiple_limiters_default_limits",
            "test_flask_ext.test_headers_breach",
            "test_flask_ext.test_custom_headers_from_config",
        ],
        TOLD: ["test_flask_ext.test_headers_no_breach", "test_flask_ext.test_headers_application_limits"],
        COMMAS: [
            "test_views.test_pluggable_views",
            "test_views.test_pluggable_method_views",
            "test_views.test_flask_restful_resource",
        ],
        SEC: [
            "test_blueprints.test_invalid_decorated_static_limit_blueprint",
            "test_blueprints.test_invalid_decorated_dynamic_limits_blueprint",
            "test_decorators.test_invalid_decorated_static_limits",
            "test_decorators.test_invalid_decorated_dynamic_limits",
        ],
        REDIS_PY: [
            "test_error_handling.test_fallback_to_memory",
            "test_error_handling.test_fallback_to_memory_with_global_override",
        ],
    },
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
        "a refusal costs nothing, so it is not counted": [
            "django_ratelimit.tests.FunctionsTests.test_not_increment_after_increment"
        ],
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
        THEIRS: _with_each("starlette", "headers_breach", "headers_no_breach"),
        UNREAD: _KEY_STYLES,
        WHOLE: [*_with_each("fastapi", "callable_cost"), *_with_each("starlette", "callable_cost")],
    },
    archive=_SLOWAPI,
)
SLOWAPI_FACE = replace(
    SLOWAPI,
    runs=[Run(["-p", "starlette_route", "-p", "of_slowapi", "tests"], {})],
    face="its `Limiter` and both middlewares: rules of the routes, and `RateLimitMiddleware`",
    passed=52,
    failing={
        THEIRS: SLOWAPI.failing[THEIRS],
        UNREAD: _KEY_STYLES,
        WHOLE: _with_each("starlette", "callable_cost"),
        ON_REFUSALS: [
            *_with_each("fastapi", "single_decorator_with_headers", "single_decorator_not_response_with_headers"),
            *_with_each("starlette", "multiple_decorators_with_headers", "retry_after"),
        ],
        NO_ARGUMENT: _with_each(
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
SUITES = [LIMITS, FLASK_LIMITER, DJANGO_RATELIMIT, SLOWAPI, SLOWAPI_FACE]
