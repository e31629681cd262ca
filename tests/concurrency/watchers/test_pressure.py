from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from batchlimit.concurrency.watchers import PressureWatcher
from batchlimit.concurrency.watchers.pressure import Kind, Resource
from batchlimit.errors import WatcherUnavailable
from tests.concurrency.watchers.trees import Tree


def tell(file: Path, some: float, full: float | None = None) -> None:
    """Write totals, given in seconds; averages that say the opposite are there to mislead."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = {"some": some} if full is None else {"some": some, "full": full}
    text = "avg10=99.00 avg60=0.00 avg300=1.25 total="
    file.write_text("".join(f"{kind} {text}{round(total * 1_000_000)}\n" for kind, total in lines.items()))


class Clock:
    """Thirty seconds pass between two readings, unless told."""

    def __init__(self, *passes: float) -> None:
        self._times: Iterator[float] = accumulate(passes or [30.0] * 100)

    def __call__(self) -> float:
        return next(self._times)


def watcher(
    tree: Tree,
    resource: Resource = "cpu",
    kind: Kind = "some",
    threshold: float = 0.5,
    *,
    low: float | None = None,
    clock: Clock | None = None,
) -> PressureWatcher:
    return PressureWatcher(resource, kind, threshold, low=low, clock=clock or Clock(), root=tree.root, proc=tree.proc)


@pytest.fixture
def file(tree: Tree) -> Path:
    """The machine's pressure on processors."""
    file = tree.proc / "pressure" / "cpu"
    tell(file, 1000.0, 0.0)
    return file


@pytest.mark.parametrize(
    ("stalled", "event"),
    [
        (0.0, None),
        (14.99, None),
        (15.0, "pressure cpu some for 0.50 of 30.0 s"),
        (30.0, "pressure cpu some for 1.00 of 30.0 s"),
    ],
)
def test_the_share_of_the_time_since_the_last_poll_counts(
    tree: Tree, file: Path, stalled: float, event: str | None
) -> None:
    watching = watcher(tree)
    watching.poll()
    tell(file, 1000.0 + stalled)
    assert watching.poll() == event


@pytest.mark.parametrize("resource", ["cpu", "memory", "io"])
@pytest.mark.parametrize("kind", ["some", "full"])
def test_each_kind_of_each_resource_has_its_total(tree: Tree, resource: Resource, kind: Kind) -> None:
    for each in ("cpu", "memory", "io"):
        tell(tree.proc / "pressure" / each, 0.0, 0.0)
    watching = watcher(tree, resource, kind)
    watching.poll()
    for each in ("cpu", "memory", "io"):
        other = 0.0 if each == resource else 29.0
        tell(tree.proc / "pressure" / each, *((20.0, other) if kind == "some" else (other, 20.0)))
    assert watching.poll() == f"pressure {resource} {kind} for 0.67 of 30.0 s"
    assert watching.name == f"pressure {resource} {kind}"


def test_our_group_comes_before_the_machine(tree: Tree, file: Path) -> None:
    own = tree.v2("web") / "cpu.pressure"
    tell(own, 0.0, 0.0)
    tree.join("0::/web")
    watching = watcher(tree)
    assert str(own) in repr(watching)
    watching.poll()
    tell(own, 20.0)
    assert watching.poll() is not None


@pytest.mark.parametrize("text", [None, "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"])
def test_where_our_group_does_not_tell_the_machine_does(tree: Tree, file: Path, text: str | None) -> None:
    """Pressure may be off for a group; and old kernels know no `full` for processors."""
    own = tree.v2("web") / "cpu.pressure"
    if text is not None:
        own.write_text(text)
    tree.join("0::/web")
    assert str(file) in repr(watcher(tree, "cpu", "full"))


def test_where_nobody_tells_it_is_said_at_once(tree: Tree, file: Path) -> None:
    with pytest.raises(WatcherUnavailable, match="pressure/io"):
        watcher(tree, "io")
    tell(file, 0.0)
    with pytest.raises(WatcherUnavailable, match="'full'"):
        watcher(tree, "cpu", "full")


def test_only_what_the_kernel_knows_can_be_watched(tree: Tree, file: Path) -> None:
    with pytest.raises(ValueError, match="'disk'"):
        watcher(tree, "disk")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'most'"):
        watcher(tree, "cpu", "most")  # type: ignore[arg-type]


@pytest.mark.parametrize("resource", ["cpu", "memory", "io"])
def test_this_machine_tells(resource: Resource) -> None:
    try:
        watching = PressureWatcher(resource, threshold=1.0)
    except WatcherUnavailable as error:
        pytest.skip(str(error))
    assert watching.poll() is None
