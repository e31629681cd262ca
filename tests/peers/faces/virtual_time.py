"""Time of the suites that stands still but where they sleep: a plugin of pytest."""

import asyncio
import time

_real_sleep = asyncio.sleep


class Virtual:
    def __init__(self) -> None:
        self.now = 1_800_000_000.25

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def sleep_in_loop(self, seconds: float, *_: object) -> None:
        self.now += seconds
        await _real_sleep(0)


virtual = Virtual()
for module, name, moved in (
    (time, "time", virtual),
    (time, "sleep", virtual.sleep),
    (asyncio, "sleep", virtual.sleep_in_loop),
):
    setattr(module, name, moved)
