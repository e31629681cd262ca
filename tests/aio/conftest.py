"""A test that is a coroutine runs on a loop of its own, in virtual time unless it is marked `real_time`."""

import asyncio
import inspect

import pytest

from tests.aio.loop import VirtualLoop


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    factory = None if pyfuncitem.get_closest_marker("real_time") else VirtualLoop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(pyfuncitem.obj(**arguments))
    return True
