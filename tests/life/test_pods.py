"""Deployments of real processes on a real server: files that change, overrides in force, rollbacks, old pods."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from batchlimit.admin import Admin
from tests.depth import depth
from tests.life.pod import Pod, pod
from tests.nodes import await_fact
from tests.servers import SERVERS, Server

pytestmark = pytest.mark.parametrize("server", depth(["valkey"], list(SERVERS)), indirect=True)

KEY = "search:ann"
# Quotas by the hour: a bucket that is full is forgotten, and a machine may stand still for longer than that takes.
APIS = "threads", "asyncio"
_PODS = depth(2, 3)


def limits(search: str, revision: int = 0) -> str:
    return f'revision = {revision}\n[limits]\n"search:*" = "{search}"\n"*" = "1000/s"\n'


def mount(folder: Path, version: int, text: str) -> None:
    """As Kubernetes does it: the path stays a link, and leads elsewhere by `..data`."""
    (folder / f"..{version}").mkdir()
    (folder / f"..{version}" / "limits.toml").write_text(text)
    (folder / "..new").symlink_to(f"..{version}")
    (folder / "..new").replace(folder / "..data")


def test_two_processes_go_by_a_file_that_is_swapped_under_them(server: Server, prefix: str, tmp_path: Path) -> None:
    path = tmp_path / "limits.toml"
    path.symlink_to("..data/limits.toml")
    mount(tmp_path, 1, limits("100/s"))
    with ExitStack() as stack:
        pods = [stack.enter_context(pod(server.url, prefix, api, str(path))) for api in APIS]
        assert [each.limit(KEY) for each in pods] == [100, 100]
        mount(tmp_path, 2, limits("20/s"))
        await_fact(lambda: [each.limit(KEY) for each in pods] == [20, 20], "both obey")
        mount(tmp_path, 3, "this is no TOML")
        mount(tmp_path, 4, limits("30/s"))
        await_fact(lambda: [each.limit(KEY) for each in pods] == [30, 30], "both obey")
        path.with_name("beside").write_text(limits("0/s"))
        path.with_name("beside").replace(path)
        await_fact(lambda: [each.admits(KEY, 1) for each in pods] == [0, 0], "both refuse")
        assert [each.limit("another") for each in pods] == [1000, 1000]


def test_a_restarted_process_with_an_old_file_changes_nothing(server: Server, prefix: str, tmp_path: Path) -> None:
    new, old = tmp_path / "new.toml", tmp_path / "old.toml"
    new.write_text(limits("20/hour", revision=2))
    old.write_text(limits("500/hour", revision=1))
    with pod(server.url, prefix, "threads", str(new)) as running:
        assert running.limit(KEY) == 20
        for api in APIS:
            with pod(server.url, prefix, api, str(old)) as restarted:
                assert [restarted.limit(KEY), running.limit(KEY), restarted.limit(KEY)] == [20] * 3


@pytest.mark.parametrize("api", depth(APIS[1:], APIS))
def test_with_an_override_in_force_a_deployment_its_rollback_and_an_old_pod_change_nothing(
    server: Server, prefix: str, api: str
) -> None:
    first: dict[str, Any] = {"quotas": {"search:*": "100/hour"}, "revision": 1}
    second: dict[str, Any] = {"quotas": {"search:*": "300/hour"}, "revision": 2}
    forgotten: dict[str, Any] = {"quotas": {"search:*": "500/hour"}}
    with Admin.from_url(server.url, prefix=prefix, deadline=30.0, connect_timeout=30.0) as admin, ExitStack() as stack:

        def started(code: dict[str, Any]) -> tuple[ExitStack, Pod]:
            place = stack.enter_context(ExitStack())
            return place, place.enter_context(pod(server.url, prefix, api, **code))

        def all_obey(limit: int) -> None:
            assert [each.limit(KEY) for _, each in pods] == [limit] * len(pods)
            state = admin.buckets.get(KEY)
            assert state is not None
            assert (state.quota.burst, state.rules) == (limit, admin.overrides().revision)

        pods = [started(first) for _ in range(_PODS)]
        assert [each.limit(KEY) for _, each in pods] == [100] * _PODS
        admin.set("search:*", "20/hour", why="the index is slow")
        await_fact(lambda: [each.limit(KEY) for _, each in pods] == [20] * _PODS, "all obey the override")
        for code in (second, first, forgotten):
            for place in range(depth(1, _PODS)):
                pods[place][0].close()
                pods[place] = started(code)
                all_obey(20)
        pods[0][0].close()
        pods[0] = started(first)
        all_obey(20)
        admin.unset("search:*")
        await_fact(
            lambda: [each.limit(KEY) for _, each in pods] == [100] * _PODS, "the code of the highest revision counts"
        )
