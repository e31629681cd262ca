"""`rules apply`: the overrides of a file, at a terminal, on a real server."""

import json
from pathlib import Path

import pytest

from batchlimit.admin import Admin
from tests.cli.conftest import Run
from tests.depth import only_deep

TOML = """[overrides]
"search:*" = "20/s"
"export:*" = {mode = "open", until = "1h", why = "an incident"}
"bo\\u001Bb" = "1/s"
"""
YAML = "overrides:\n  search:*: 20/s\n  export:*: {mode: open, why: an incident}\n"


def written(folder: Path, text: str, name: str = "live.toml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def names(admin: Admin) -> list[str]:
    return sorted(each.name for each in admin.overrides())


def test_a_file_is_set_in_one_change_and_its_difference_is_shown_before(run: Run, admin: Admin, tmp_path: Path) -> None:
    admin.apply({"search:*": "50/s", "left": "1/s"})
    file = written(tmp_path, YAML, "live.yaml")
    shown = run("rules", "apply", file, "--prune", "--dry-run", "-o", "json")
    assert json.loads(shown.stdout) == [
        {"name": "search:*", "before": "search:* 50/s", "after": "search:* 20/s"},
        {"name": "export:*", "before": None, "after": "export:* open (an incident)"},
        {"name": "left", "before": "left 1/s", "after": None},
    ]
    assert "2 would be set, 1 would be removed, 0 unchanged" in shown.stderr
    assert names(admin) == ["left", "search:*"]
    assert run("rules", "apply", file, "--prune").exit_code == 1, "nobody said yes"
    done = run("rules", "apply", file, "--prune", "--yes", "--who", "ann", "--why", "the file")
    assert (done.exit_code, "2 set, 1 removed" in done.stderr) == (0, True)
    assert {(each.name, each.who, each.why) for each in admin.overrides()} == {
        ("search:*", "ann", "the file"),
        ("export:*", "ann", "an incident"),
    }
    again = run("rules", "apply", file, "--why", "the file")
    assert (again.exit_code, "0 set, 0 removed, 2 unchanged" in again.stderr) == (0, True)


def test_a_difference_tells_until_when_each_counts(run: Run, admin: Admin, tmp_path: Path) -> None:
    admin.set("ann", "5/s", until="2099-01-01T00:00Z")
    file = written(tmp_path, '[overrides]\nann = {quota = "5/s", until = "2099-02-01T00:00Z"}')
    (row,) = json.loads(run("rules", "apply", file, "--dry-run", "-o", "json").stdout)
    assert row["before"] == "ann 5/s until 2099-01-01 00:00:00 UTC"
    assert row["after"] == "ann 5/s until 2099-02-01 00:00:00 UTC"


def test_what_holds_for_every_key_asks_first(run: Run, admin: Admin, tmp_path: Path) -> None:
    file = written(tmp_path, '[overrides]\n"*" = "20/s"')
    assert run("rules", "apply", file).exit_code == 1
    assert run("rules", "apply", file, typed_in="y\n").exit_code == 0
    assert names(admin) == ["*"]


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        (TOML, "live.toml", r"'bo\x1bb'"),
        ('[overrides]\nann = "5/s"\nbob = "5/fortnight"', "live.toml", "live.toml:3:1: 'bob': quota"),
        (
            "overrides:\n  ann: 5/s\n  bob: {quota: 5/s, unti: 1h}",
            "live.yaml",
            "live.yaml:3:3: 'bob': an override has no field",
        ),
        ("[overrides]\nann = ", "live.toml", "live.toml:2: not TOML"),
        ("[limits]", "live.toml", "there is no table of overrides"),
        ("overrides: [", "live.yaml", "not YAML"),
        ("", "live.ini", "files named .toml, .yaml, .yml"),
    ],
)
def test_of_a_file_with_a_fault_nothing_is_set(
    run: Run, admin: Admin, tmp_path: Path, text: str, name: str, told: str
) -> None:
    done = run("rules", "apply", written(tmp_path, text, name))
    assert (done.exit_code, told in done.stderr) == (2, True), done.stderr
    assert names(admin) == []
    assert run("rules", "apply", str(tmp_path / "missing.toml")).exit_code == 2


@only_deep
def test_ten_thousand_are_set_at_once(run: Run, admin: Admin, tmp_path: Path) -> None:
    lines = "\n".join(f'"key:{number}" = "{number + 1}/s"' for number in range(10_000))
    assert run("rules", "apply", written(tmp_path, f"[overrides]\n{lines}")).exit_code == 0
    assert len(admin.overrides()) == 10_000
    assert len(admin.history(5_000)) < 2_000
