"""The laws that are compared, before one limiter or many."""

from collections.abc import Callable
from random import Random

from batchlimit.concurrency.law import Law
from batchlimit.concurrency.laws import AIMD, Gradient, Gradient2, Knee, Periodic, Vegas, Windowed
from benchmarks.queueing.elsewhere import Brpc, EnvoyGradient, FailsafeGo

OURS = "Knee"


def _jitter() -> Callable[[], float]:
    random = Random("jitter")
    return lambda: random.uniform(0.5, 1.0)


def laws(timeout_ms: int) -> dict[str, Callable[[object], Law]]:
    """Return each law by name, with its defaults but for what the name says; AIMD once with this timeout.

    Where a least limit of 20 could not serve a small server, the variant that may go down to 1 stands beside.
    """
    timeout = timeout_ms / 1000
    return {
        "AIMD, 5 s": lambda scenario: AIMD(timeout=5),
        f"AIMD, {timeout_ms} ms": lambda scenario: AIMD(timeout=timeout, minimum=1),
        f"Periodic AIMD, {timeout_ms} ms": lambda scenario: Periodic(AIMD(timeout=timeout, minimum=1)),
        "Vegas": lambda scenario: Vegas(jitter=_jitter()),
        "Windowed Vegas": lambda scenario: Windowed(Vegas(jitter=_jitter())),
        "Gradient": lambda scenario: Gradient(),
        "Gradient2": lambda scenario: Gradient2(),
        "Windowed Gradient2": lambda scenario: Windowed(Gradient2()),
        "Windowed Gradient2, 1..1000": lambda scenario: Windowed(Gradient2(minimum=1, maximum=1000)),
        "Envoy": lambda scenario: EnvoyGradient(),
        "failsafe-go": lambda scenario: FailsafeGo(),
        "brpc": lambda scenario: Brpc(),
        "brpc, 1..": lambda scenario: Brpc(minimum=1),
        OURS: lambda scenario: Knee(),
    }
