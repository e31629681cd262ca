"""`batchlimit doctor`: says of each check whether all is well, and what to do if not."""

from typing import Annotated

import typer

from batchlimit.cli.doctor.examination import Examination
from batchlimit.cli.doctor.findings import CheckVerdict, Finding
from batchlimit.cli.output import Output, say, show
from batchlimit.cli.store import AWAY, DEFAULT_PREFIX, NOTHING_DONE, Form, Prefix, Url, opened

_SHOWN = "check", "verdict", "found", "remedy"


def doctor(
    url: Url,
    deadline: Annotated[float, typer.Option(min=0.001, help="As of the limiters, in seconds.")] = 0.05,
    strict: Annotated[bool, typer.Option("--strict", help="Status 1 for a warning, too.")] = False,
    prefix: Prefix = DEFAULT_PREFIX,
    output: Form = Output.TABLE,
) -> None:
    """Check whether the store is fit for limiters. Status 1 if a check fails, 3 if the store does not answer."""
    with opened(url, prefix) as admin:
        found = list(Examination(admin.store, prefix, deadline).findings())
    several = any(each.server for each in found)
    columns = (*_SHOWN[:2], "server", *_SHOWN[2:]) if several else _SHOWN
    show([_row(each) for each in found], output, columns=columns)
    counts = {verdict: sum(each.verdict is verdict for each in found) for verdict in CheckVerdict}
    say(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    if status := _status(found, counts, strict=strict):
        raise typer.Exit(status)


def _row(finding: Finding) -> dict[str, str]:
    return finding._asdict() | {"verdict": str(finding.verdict)}


def _status(found: list[Finding], counts: dict[CheckVerdict, int], *, strict: bool) -> int:
    if not any(each.check == "reachable" and each.verdict is CheckVerdict.OK for each in found):
        return AWAY
    return NOTHING_DONE if counts[CheckVerdict.FAIL] or (strict and counts[CheckVerdict.WARNING]) else 0
