"""Where the parts of a TOML text stand, beside what tomllib reads."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.rules import RulesError
from batchlimit.rules.files.loader import Loader, Path, SyntaxProblem, place_at
from batchlimit.rules.files.toml import read

GAP = st.sampled_from(["", " ", "  ", "\t"])
NAMES = ["name", '"a b"', "'c'", "d.e", "f . g"]
LINES = st.sampled_from(["", " ", "\n", "\n\n", ' # it\'s a "comment" [ = {\n', "#\n  "])
QUOTES = st.sampled_from(['"%s"', "'%s'", '"""%s"""', "'''\n%s'''", '"""\n%s"""'])


@st.composite
def values(draw: st.DrawFn, depth: int = 2, in_line: bool = False) -> str:
    """Return a value; every text in it is another one."""
    kind = draw(st.integers(0, 2 if depth else 0))
    if kind == 0:
        marker = f"t{draw(st.uuids())}"
        return (draw(QUOTES) if not in_line else draw(st.sampled_from(['"%s"', "'%s'"]))) % marker
    parts = draw(st.lists(values(depth - 1, in_line or kind == 2), max_size=3))
    if kind == 1:
        gaps = GAP if in_line else LINES
        return "[" + ",".join(f"{draw(gaps)}{part}{draw(gaps)}" for part in parts) + "]"
    pairs = [
        f"{draw(GAP)}{key}{draw(GAP)}={draw(GAP)}{part}" for key, part in zip("ab.c", parts, strict=False) if key != "."
    ]
    return "{" + ",".join(pairs) + "}"


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Return a text of tables and arrays of tables, laid out in any way."""
    lines = [draw(LINES)]
    for number in range(draw(st.integers(0, 5))):
        header = draw(
            st.sampled_from(["[[rules]]", "[[ rules ]]", "[[rules.more]]", f"[t{number}.u]", f'["t {number}"]'])
        )
        lines.append(f"{draw(GAP)}{header}{draw(GAP)}# [x]\n" if number or "more" not in header else "")
        names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
        lines += [f"{draw(GAP)}{name}{draw(GAP)}={draw(GAP)}{draw(values())}\n{draw(LINES)}" for name in names]
    return "".join(lines)


def leaves(data: object, path: Path = ()) -> Iterator[tuple[Path, str]]:
    for part, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from leaves(value, (*path, part))
    if isinstance(data, str):
        yield path, data


@given(documents(), st.sampled_from(["\n", "\r\n"]))
def test_each_value_stands_where_it_is_said_to(text: str, newline: str) -> None:
    text = text.replace("\n", newline)
    try:
        found = Loader(text, "toml", "rules.toml", {})
    except RulesError:  # a name twice, or a table that is an array
        return
    for path, value in leaves(found.data):
        line, column = found.place(path)
        assert line is not None
        assert column is not None
        rest = "\n".join(text.split("\n")[line - 1 :])[column - 1 :]
        assert rest.lstrip("\"'\r\n").startswith(value)
        key = found.place(path, of_key=True)
        assert key.line is not None
        assert key.line <= line


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("a = 1\nb = ", (2, 5), "Invalid value"),
        ("a = 1\na = 2", (2, 6), "Cannot overwrite a value"),
        ("[a]\n[a]", (2, 3), "Cannot declare"),
        ('a = "', (1, None), "Unterminated string"),
    ],
)
def test_a_text_that_is_not_toml_is_refused_with_a_place(text: str, place: tuple[int, int | None], says: str) -> None:
    with pytest.raises(SyntaxProblem, match=says) as error:
        read(text)
    assert error.value.args[1].line == place[0]


@pytest.mark.parametrize(("offset", "place"), [(0, (1, 1)), (2, (1, 3)), (3, (2, 1)), (4, (2, 2))])
def test_lines_and_columns_begin_at_one(offset: int, place: tuple[int, int]) -> None:
    assert place_at("ab\ncd", offset) == place
