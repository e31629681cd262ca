"""One exploration, and its story where a rule is broken; on its own, so that other processes can import it."""

from tests.model.broken import BREAKS
from tests.model.explore import Found, explore, story
from tests.model.shapes import Size, shapes_of


def explored(name: str, size: Size) -> tuple[str, Found, list[str]]:
    """Explore one shape; for another process."""
    shape = shapes_of(size)[name]
    found = explore(shape)
    return name, found, [] if found.wrong is None else story(shape, found.wrong[0])


def broken(rule: str) -> tuple[str, Found, list[str]]:
    """Break a rule, and explore the shape in which that is found."""
    shape = shapes_of("all")[BREAKS[rule].shape]
    with BREAKS[rule].made():
        found = explore(shape)
        return rule, found, [] if found.wrong is None else story(shape, found.wrong[0])
