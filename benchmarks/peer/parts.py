"""All that is measured."""

from typing import Any

from benchmarks.peer.awaited import AWAITED
from benchmarks.peer.bench import Part, Run
from benchmarks.peer.contender import Contender
from benchmarks.peer.pinned import CAN_PIN
from benchmarks.peer.runs import AWAY, crowd, flat_out, paced, timed
from benchmarks.peer.threaded import SINGLE, THREADED

_SPEED: dict[str, Run] = {
    "1 thread": flat_out(1),
    "8 threads": flat_out(8),
    "64 threads": flat_out(64),
    "4 x 8 threads": flat_out(8, 4),
}
_PINNED: dict[str, Run] = {
    "1 thread": flat_out(1, pin=True),
    "8 threads": flat_out(8, pin=True),
    "64 threads": flat_out(64, pin=True),
    "4 x 8 threads": flat_out(8, 4, pin=True),
}
NEAR, FAR = "on this machine", "1 ms away"
_FAR: dict[str, Run] = {
    "1 thread": flat_out(1, where=AWAY),
    "8 threads": flat_out(8, where=AWAY),
    "64 threads": flat_out(64, where=AWAY),
}
_FAR_TASKS: dict[str, Run] = {
    "64 tasks": crowd(64, where=AWAY),
    "1,000 tasks": crowd(1000, where=AWAY),
}
COST = "0.9x of 4,000/s"
DRY, TENFOLD = "100/s, flat out", "10x of 10,000/s"
DRY_FAR, TENFOLD_FAR = (f"{each}, {FAR}" for each in (DRY, TENFOLD))

_TIMED: dict[str, Run] = {NEAR: timed(8, 4000), FAR: timed(8, 4000, where=AWAY)}
_OVERLOAD: dict[str, Run] = {
    DRY: flat_out(8, rate=100, seconds=2.0),
    TENFOLD: paced(8, 10_000, 10.0),
    DRY_FAR: flat_out(8, rate=100, seconds=2.0, where=AWAY),
    TENFOLD_FAR: paced(8, 10_000, 10.0, where=AWAY),
}
_SINGLE: dict[str, Run] = {
    "1 thread": flat_out(1),
    "8 threads": flat_out(8),
    "8 threads at 5/s": flat_out(8, rate=5),
}
# What another one of the same package does better, or no better, is left out where runs are long or many.
_FEWER = tuple(each for each in THREADED if each.name not in ("limits, sliding counter", "redis-rate-limiters"))
# A refusal of redis-rate-limiters has booked its place all the same: who goes on asking is never admitted again.
_CAN_REFUSE = tuple(each for each in THREADED if each.name != "redis-rate-limiters")

PARTS: dict[str, Part] = {
    each.name: each
    for each in (
        Part("speed", THREADED, _SPEED, 5),
        *([Part("pinned", _FEWER, _PINNED, 5)] if CAN_PIN else []),
        Part("tasks", AWAITED, {"64 tasks": crowd(64), "1,000 tasks": crowd(1000)}, 5),
        Part("far", _FEWER, _FAR, 3),
        Part("far tasks", AWAITED, _FAR_TASKS, 3),
        Part("latency", _FEWER, _TIMED, 5),
        Part("cost", _FEWER, {COST: paced(8, 4000, 0.9)}, 3),
        Part("overload", _CAN_REFUSE, _OVERLOAD, 3),
        Part("single", SINGLE, _SINGLE, 3),
    )
}
"""By name."""
_ALL: list[Contender[Any]] = [*THREADED, *AWAITED]
PEERS = tuple(dict.fromkeys(each.name for each in _ALL if each.is_peer))
"""The libraries that limit by asking Redis, which ours is measured against."""
