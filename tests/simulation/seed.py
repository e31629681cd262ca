"""A seed: what is played and, when it breaks a rule, told; on its own, so that other processes can import it."""

from contextlib import nullcontext

from tests.simulation.breaks import BREAKS
from tests.simulation.scenario import draw
from tests.simulation.shrink import failure, shortest, trace


def play(seed: int, broken: str | None = None) -> tuple[int, str]:
    """Return the seed, and how it failed, or nothing."""
    with BREAKS[broken]() if broken else nullcontext():
        error = failure(draw(seed))
    return seed, f"{type(error).__name__}: {error}" if error else ""


def explain(seed: int, broken: str | None) -> str:
    """Return the shortest story of how this seed fails."""
    with BREAKS[broken]() if broken else nullcontext():
        scenario = shortest(draw(seed))
        fleet = f"{len(scenario.weights)} instances, {scenario.weather}, timeout {scenario.timeout:g} s"
        head = f"{scenario.quotas[0]}, {fleet}"
        return "\n".join([f"seed {seed}: {head}", *trace(scenario)])
