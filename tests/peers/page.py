"""What the page says of the suites: `python -m tests.peers.page` prints it."""

import sys
from collections.abc import Iterable, Iterator

from tests.peers.suites import SUITES, Suite


def shown(suites: Iterable[Suite]) -> str:
    """Return the table of the suites, and after it what fails in each, by reason."""
    rows = [
        "| suite | what is ours | run | passed | failed | skipped | not run |",
        "|---|---|--:|--:|--:|--:|---|",
        *map(_row, suites),
    ]
    return "\n".join([*rows, *(line for each in suites for line in _failing(each))]) + "\n"


def _row(suite: Suite) -> str:
    failed = sum(map(len, suite.failing.values()))
    run = suite.passed + failed + suite.skipped
    numbers = f"{run} | {suite.passed} | {failed} | {suite.skipped}"
    return f"| {suite.package} {suite.version}{suite.kind} | {suite.face} | {numbers} | {suite.left_out} |"


def _failing(suite: Suite) -> Iterator[str]:
    yield from ["", f"## What fails of {suite}", "", "| why | tests | which |", "|---|--:|---|"]
    for reason, names in suite.failing.items():
        bare = dict.fromkeys(name.split(".")[-1].split("[")[0].removeprefix("test_") for name in names)
        yield f"| {reason} | {len(names)} | {', '.join(f'`{name}`' for name in bare)} |"


if __name__ == "__main__":
    sys.stdout.write(shown(SUITES))
