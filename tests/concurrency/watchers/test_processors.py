"""How much of its processors a group uses, told by files of both versions, and by this machine's own."""

import os
from pathlib import Path

import pytest

from batchlimit.concurrency.watchers import ProcessorWatcher
from batchlimit.errors import WatcherUnavailable
from tests.concurrency.watchers.trees import Tree, write
from tests.sync.stage import Clock


def machine(tree: Tree, busy: int, idle: int, cpus: int = 4) -> None:
    """Have /proc/stat tell of ticks; half of the idle ones were waiting for a disk, and guests count twice."""
    line = f"{busy} 0 0 {idle - idle // 2} {idle // 2} 0 0 0 {busy} 0"
    (tree.proc / "stat").write_text("".join(f"{name} {line}\n" for name in ("cpu ", *(f"cpu{i}" for i in range(cpus)))))


class Group:
    """A group of either version with two processors."""

    def __init__(self, tree: Tree, version: int, path: str) -> None:
        self.version = version
        if version == 1:
            self.quota, self.usage = tree.group(f"cpu/{path}"), tree.group(f"cpuacct/{path}")
        else:
            self.quota = self.usage = tree.v2(path)
        self.allow(2)
        self.use(0.0)

    def allow(self, cpus: int | None) -> None:
        if self.version == 1:
            (self.quota / "cpu.cfs_quota_us").write_text(f"{-1 if cpus is None else cpus * 100_000}\n")
            (self.quota / "cpu.cfs_period_us").write_text("100000\n")
        else:
            write(self.quota, cpu_max=f"{'max' if cpus is None else cpus * 100_000} 100000")

    def use(self, seconds: float) -> None:
        if self.version == 1:
            write(self.usage, cpuacct_usage=round(seconds * 1e9))
        else:
            write(self.usage, cpu_stat={"usage_usec": round(seconds * 1e6)})


class Scene:
    def __init__(self, tree: Tree, version: int) -> None:
        self.tree, self.version, self.clock = tree, version, Clock()
        machine(tree, 0, 0)
        self.group = Group(tree, version, "web")
        tree.join(*(["4:cpu:/web", "5:cpuacct:/web"] if version == 1 else ["0::/web"]))

    def watcher(self, threshold: float = 0.9, group: str | None = None) -> ProcessorWatcher:
        found = ProcessorWatcher(threshold, group=group, root=self.tree.root, proc=self.tree.proc, clock=self.clock)
        assert found.poll() is None  # the first knows of nothing before
        return found


@pytest.fixture(params=[1, 2])
def scene(tree: Tree, request: pytest.FixtureRequest) -> Scene:
    return Scene(tree, request.param)


@pytest.mark.parametrize(("used", "is_event"), [(0, False), (17.9, False), (18.1, True), (20, True), (21, True)])
def test_use_of_the_quota_is_an_event_from_the_threshold_on(scene: Scene, used: float, is_event: bool) -> None:
    """Two processors for 10 s are 20 s."""
    watcher = scene.watcher()
    scene.clock.now += 10
    scene.group.use(used)
    assert (watcher.poll() is not None) == is_event


def test_another_quota_counts_from_the_next_poll_on(scene: Scene) -> None:
    watcher = scene.watcher()
    scene.clock.now += 10
    scene.group.use(10)
    scene.group.allow(1)
    assert watcher.poll() is not None
    scene.clock.now += 10
    scene.group.use(20)
    scene.group.allow(4)
    assert watcher.poll() is None


def test_without_a_quota_the_machine_counts_whoever_uses_it(scene: Scene) -> None:
    scene.group.allow(None)
    watcher = scene.watcher()
    machine(scene.tree, 91, 9)
    assert watcher.poll() == "0.91 of the processors of the machine in use"
    machine(scene.tree, 91 + 89, 9 + 11)
    assert watcher.poll() is None


def test_the_quota_may_be_that_of_a_group_that_holds_ours(tree: Tree) -> None:
    machine(tree, 0, 0)
    clock, pod = Clock(), Group(tree, 2, "pod")
    Group(tree, 2, "pod/web").allow(None)
    tree.join("0::/pod/web")
    watcher = ProcessorWatcher(root=tree.root, proc=tree.proc, clock=clock)
    watcher.poll()
    clock.now += 1
    pod.use(2)
    assert watcher.poll() == f"1.00 of the processors of {pod.usage} in use"


def test_a_named_group_counts_alone(scene: Scene) -> None:
    other = Group(scene.tree, scene.version, "gitaly/repos-7")
    watcher = scene.watcher(group="gitaly/repos-7")
    scene.clock.now += 10
    scene.group.use(100)
    assert (watcher.name, watcher.poll()) == ("processors gitaly/repos-7", None)
    scene.clock.now += 10
    other.use(19)
    assert watcher.poll() is not None


def test_a_named_group_without_a_quota_may_use_the_whole_machine(scene: Scene) -> None:
    other = Group(scene.tree, scene.version, "repos")
    other.allow(None)
    watcher = scene.watcher(group="/repos/")
    scene.clock.now += 10
    other.use(35)
    assert watcher.poll() is None
    scene.clock.now += 10
    other.use(35 + 37)
    assert watcher.poll() is not None


def test_a_group_that_does_not_tell_is_told(tree: Tree) -> None:
    machine(tree, 0, 0)
    tree.v2("repos")
    with pytest.raises(WatcherUnavailable, match="does not tell what it uses"):
        ProcessorWatcher(group="repos", root=tree.root, proc=tree.proc)


def test_a_group_that_went_away_is_an_error_of_the_poll(scene: Scene) -> None:
    watcher = scene.watcher()
    for file in scene.group.usage.iterdir():
        file.unlink()
    with pytest.raises(FileNotFoundError, match="is gone"):
        watcher.poll()


def test_a_machine_that_tells_nothing_has_no_watcher(tree: Tree) -> None:
    tree.join()
    with pytest.raises(WatcherUnavailable, match="this needs Linux"):
        ProcessorWatcher(root=tree.root, proc=tree.proc)


@pytest.mark.skipif(not Path("/proc/stat").is_file(), reason="needs Linux")
def test_this_machine_tells_what_its_processors_do() -> None:
    watcher = ProcessorWatcher(1e-6)
    watcher.poll()
    before = os.times().user
    while os.times().user - before < 0.1:  # work, for several ticks of the kernel's clock
        sum(range(1000))
    reason = watcher.poll()
    assert reason is not None
    assert reason.endswith("in use")
