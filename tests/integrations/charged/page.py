"""The tables of the page, as it was measured; `python -m tests.integrations.charged.page` measures, and writes them."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.markdown import between_marks, table
from tests.integrations.charged.calls import measured_calls
from tests.integrations.charged.cases import CASES, Charged, measured
from tests.integrations.charged.faces import FACES

PAGE = Path(__file__).parents[3] / "docs" / "charged.md"
GRPC = "gRPC"
_NOTHING = "-"
_WITHOUT_ROUTE = ("off", "static")
"""Cases in which the route asks for no rule, or for another one."""
_MESSAGES = "the same 3 messages, by a rule of `messages=`"
Found = Mapping[str, Charged | None]
Columns = dict[str, dict[str, dict[str, str]]]
"""The cells by table, by face and by what stands at the begin of the line."""


def found_of(face: str) -> Found:
    """Measure a face."""
    return measured_calls() if face == GRPC else measured(FACES[face])


def column(rule: str, face: str, found: Found) -> dict[str, str]:
    """Return what stands in the table of a rule in the column of a face; nothing: it has no column there."""
    if rule == "route" and (face == GRPC or not FACES[face].asks):
        return {}
    return dict(_cells(rule, found))


def _cells(rule: str, found: Found) -> Iterator[tuple[str, str]]:
    for name, case in CASES.items():
        if rule != "route" or name not in _WITHOUT_ROUTE:
            charged = found[name]
            yield case.title, _NOTHING if charged is None else str(charged[rule])
    if rule == "path":
        charged = found["ws"]
        yield _MESSAGES, _NOTHING if charged is None else str(charged["messages"])


def written(columns: Mapping[str, Mapping[str, str]]) -> str:
    """Return a table of these columns, by face."""
    faces = [face for face, cells in columns.items() if cells]
    titles = columns[faces[0]]
    return table(["tokens", *faces], ([title, *(columns[face][title] for face in faces)] for title in titles))


def shown(rule: str, face: str) -> dict[str, str]:
    """Return what stands in the page in the table of a rule in the column of a face."""
    text = PAGE.read_text("utf-8").partition(f"<!-- {rule} -->\n")[2].partition(f"<!-- /{rule} -->")[0]
    head, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.strip().split("\n")]
    return {line[0]: line[head.index(face)] for line in lines} if face in head else {}


def main() -> None:
    """Measure all faces, and write the page."""
    logging.disable()  # of views that raise
    found = {face: found_of(face) for face in (*FACES, GRPC)}
    for rule in ("path", "route", "outcome"):
        between_marks(PAGE, rule, written({face: column(rule, face, each) for face, each in found.items()}))


if __name__ == "__main__":
    main()
