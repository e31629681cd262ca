"""A TOML text, and where in it each key and value stands: tomllib reads it, and tells no positions.

The text is scanned a second time. `tomllib` has accepted it by then, so the scan takes every text for well-formed.
"""

import re
import tomllib
from collections.abc import Iterator

from batchlimit.rules.files.loader import Document, Path, Position, SyntaxProblem

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})' + r"|'''.*?'''(?:'{0,2})" + r'|"(?:\\.|[^"\\])*"' + r"|'[^']*'", re.DOTALL
)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]*")
_WHERE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def read(text: str) -> Document:
    """Read a text. Raises SyntaxProblem."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, where, place = str(error), _WHERE.search(str(error)), Position(None, None)
        if where is not None:
            message = message[: where.start()]
            place = Position(int(where[1]), int(where[2])) if where[1] else Position(text.count("\n") + 1, None)
        raise SyntaxProblem(message, place) from error
    scan = _Scan(text.replace("\r\n", " \n"))  # as long as before
    return Document(data, lambda path, of_key: (scan.keys if of_key else scan.values).get(path))


class _Scan:
    """One walk over the text. `keys` and `values` are offsets by path: ("rules", 0, "quota")."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self.keys: dict[Path, int] = {}
        self.values: dict[Path, int] = {}
        counts: dict[Path, int] = {}
        table: Path = ()
        while self._more():
            if not self._skip("["):
                self._pair(table)
                continue
            is_array, table = self._skip("["), ()
            self._more()
            start = self._at
            for part in self._key():  # below an array of tables it means the last of them
                table = (*table, counts[table], part) if table in counts else (*table, part)
            if is_array:
                counts[table] = counts.get(table, -1) + 1
                self.keys.setdefault(table, start)
                table = (*table, counts[table])
            self._skip("]]" if is_array else "]")
            self.keys[table] = self.values[table] = start

    def _pair(self, path: Path) -> None:
        start = self._at
        for part in self._key():
            path = (*path, part)
            self.keys.setdefault(path, start)
        self._skip("=")
        self._more()
        self._value(path)

    def _key(self) -> Iterator[str]:
        """Walk over a dotted key, and yield its parts."""
        while True:
            self._more()
            part = self._take(_STRING, _BARE)
            yield str(tomllib.loads(f"key = {part}")["key"]) if part[0] in "\"'" else part
            self._more()
            if not self._skip("."):
                return

    def _value(self, path: Path) -> None:
        self.values[path], number = self._at, 0
        if self._skip("["):
            while self._more() and not self._skip("]"):
                self._value((*path, number))
                number += 1
                self._more()
                self._skip(",")
        elif self._skip("{"):
            while self._more() and not self._skip("}"):
                self._pair(path)
                self._more()
                self._skip(",")
        else:
            self._take(_STRING, _SCALAR)

    def _skip(self, mark: str) -> bool:
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        return True

    def _more(self) -> bool:
        """Skip white space and comments, and tell whether anything is left."""
        self._take(_SPACE)
        return self._at < len(self._text)

    def _take(self, *forms: re.Pattern[str]) -> str:
        """Walk over what has one of these forms, and return it."""
        found = next(filter(None, (form.match(self._text, self._at) for form in forms)))
        self._at = found.end()
        return found[0]
