"""A test that is a coroutine runs in virtual time unless it is marked `real_time`."""

import pytest

from tests.aio.loop import run_test


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_test(pyfuncitem, is_virtual=pyfuncitem.get_closest_marker("real_time") is None)
