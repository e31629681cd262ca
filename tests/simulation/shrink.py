"""How a seed breaks a rule, and the shortest scenario that still does: pieces are taken away as long as it does."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace

from tests.simulation.breaks import BREAKS
from tests.simulation.run import Run
from tests.simulation.scenario import Event, Scenario, draw

Fails = Callable[[Scenario], bool]


def failure(scenario: Scenario) -> Exception | None:
    """Return how the scenario fails, if it does; whatever is raised counts."""
    try:
        Run(scenario).play()
    except Exception as error:  # noqa: BLE001  # a crash of the rules is as much of a find as a broken one
        return error
    return None


def trace(scenario: Scenario) -> list[str]:
    """Return what happened until the scenario failed, a line each, and how it failed."""
    run = Run(scenario, trace=True)
    try:
        run.play()
    except Exception as error:  # noqa: BLE001
        return [*(run.watch.trace or []), f"{type(error).__name__}: {error}"]
    return [*(run.watch.trace or []), "no rule was broken"]


def shortest(scenario: Scenario, fails: Fails = lambda scenario: failure(scenario) is not None) -> Scenario:
    """Return a scenario that fails and of which no event can be left out, nor made smaller."""
    while (shorter := next(filter(fails, _shorter(scenario)), None)) is not None:
        scenario = shorter
    return scenario


def _shorter(scenario: Scenario) -> Iterator[Scenario]:
    """Everything that is a little less, what leaves out most first."""
    events, size = scenario.events, len(scenario.events) // 2
    while size:
        for first in range(0, len(events), size):
            yield replace(scenario, events=events[:first] + events[first + size :])
        size //= 2
    for i, event in enumerate(events):
        for smaller in _smaller(event):
            yield replace(scenario, events=(*events[:i], smaller, *events[i + 1 :]))


def _smaller(event: Event) -> Iterator[Event]:
    if event.number > 1:
        yield replace(event, number=1)
        yield replace(event, number=event.number // 2)
        yield replace(event, number=event.number - 1)


def play(seed: int, broken: str | None = None) -> tuple[int, str]:
    """Return the seed, and how it failed, or nothing."""
    with BREAKS[broken]() if broken else nullcontext():
        error = failure(draw(seed))
    return seed, f"seed {seed}: {type(error).__name__}: {error}" if error else ""


def explain(seed: int, broken: str | None) -> str:
    """Return the shortest story of how this seed fails."""
    with BREAKS[broken]() if broken else nullcontext():
        scenario = shortest(draw(seed))
        fleet = f"{len(scenario.weights)} instances, {scenario.weather}, timeout {scenario.timeout:g} s"
        head = f"{scenario.quotas[0]}, {fleet}"
        return "\n".join([f"seed {seed}: {head}", *trace(scenario)])
