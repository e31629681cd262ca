"""A process that is a pod of a deployment: it calls a limiter on demand, and says which limit holds there."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]


class Pod:
    """The process, seen from outside."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def limit(self, key: str) -> int:
        """Have it call once, and return the limit that its Decision tells of."""
        return int(self._ask(key)["limit"])

    def admits(self, key: str, calls: int) -> int:
        """Have it call so many times; return how many were admitted."""
        return sum(self._ask(key)["allowed"] for _ in range(calls))

    def _ask(self, key: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(key, file=self._process.stdin, flush=True)
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found


@contextmanager
def pod(url: str, prefix: str, api: str, quotas: Any, **options: Any) -> Iterator[Pod]:
    """Run one until the block ends: `api` is "threads" or "asyncio", `quotas` a dict or the path of a file to watch."""
    words = [sys.executable, "-m", "tests.life.pod", json.dumps([url, prefix, api, quotas, options])]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    with subprocess.Popen(
        words, env=environment, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        try:
            yield Pod(process)
        finally:
            process.stdin.close()


def _main() -> None:
    # Here and not above: a test that only drives pods needs none of it.
    from batchlimit import AsyncRateLimiter, RateLimiter
    from batchlimit.rules import RuleFile

    url, prefix, api, given, options = json.loads(sys.argv[1])
    quotas = RuleFile(given, watch=True, interval=0.02) if isinstance(given, str) else given
    options |= {"prefix": prefix, "deadline": 30.0, "connect_timeout": 30.0}

    async def serve() -> None:
        async with AsyncRateLimiter.from_url(url, quotas, **options) as limiter:
            while line := await asyncio.to_thread(sys.stdin.readline):
                _tell(await limiter.decide(line.strip()))

    if api == "asyncio":
        asyncio.run(serve())
        return
    with RateLimiter.from_url(url, quotas, **options) as limiter:
        for line in sys.stdin:
            _tell(limiter.decide(line.strip()))


def _tell(decision: Any) -> None:
    sys.stdout.write(json.dumps({"limit": decision.limit, "allowed": decision.allowed}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main()
