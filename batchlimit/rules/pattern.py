"""What requests a rule is for: methods and a path pattern, such as "GET,HEAD /items/{id}"."""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from http import HTTPMethod

from batchlimit.base.redaction import caution, shown

LONGEST = 100
"""Segments of a pattern, at most."""

_METHOD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*|\*").fullmatch
_USUAL = [each.value for each in HTTPMethod]
_EXAMPLE = "write 'POST /login', '/api/*', '/items/{id}' or '*'"
_FOREIGN = (
    (re.compile(r"\||,/"), "several patterns are a list, each with one path"),
    (re.compile(r"[<>]|/:\w"), "a parameter is a whole segment such as {id}"),
    (
        re.compile(r"[][^\\]|\$(?:/|$)|[.)][+*?]|\(\?"),
        "no regular expression is read; {id} is any one segment, '/*' all below",
    ),
)
"""What a pattern of another router has, as Flask's, Express's or nginx's, and no path of a client; with the remedy."""
_WRONG = (
    (re.compile(r"//|/\.\.?(?:/|$)"), " can never match: paths are matched without '//', '/.' and '/..'"),
    (re.compile(r"[?#]"), " can never match: a path has no query"),
    (re.compile(r"\*"), ": '*' stands at the end, after a slash; {name} is any one segment"),
    (re.compile(r"[{}]"), ": a parameter such as {id} is a whole segment"),
    (re.compile("%"), " can never match: paths are matched decoded; write the character itself"),
)
"""What must not stand in a path beside parameters and a "/*" at its end; with what to say."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Methods and a path."""

    # in upper case; None: every method. HEAD is there where GET is, because frameworks answer it by GET.
    methods: frozenset[str] | None
    segments: tuple[str | None, ...]  # what stands between the slashes, in lower case; None stands for a parameter
    names: tuple[tuple[str, int], ...]  # the names of the parameters, each with the number of its segment
    rest: bool  # whether more segments may follow: the pattern ends with "*"

    @classmethod
    def parse(cls, text: object) -> "Pattern":
        """Read a pattern. Raises ValueError or TypeError for one that can never match."""
        if not isinstance(text, str):
            raise TypeError(f"match is a str or several; {_EXAMPLE}, not {shown(text)}")
        methods, path = _split(text)
        segments, names, rest = _path(text, path)
        return cls(methods, segments, names, rest)

    def takes(self, method: str | None) -> bool:
        """Whether it is for a method, in upper case; None is one that no pattern names."""
        return self.methods is None or method in self.methods

    def warn(self, text: str) -> None:
        """Warn of a method that is nearly a usual one: a server may know it, and most likely it is a slip."""
        for method in sorted(self.methods or ()):
            if method not in _USUAL and (meant := get_close_matches(method, _USUAL, 1, 0.75)):
                caution(f"match {shown(text)} is for requests of the method {method}: did you mean {meant[0]}?")

    def overlaps(self, other: "Pattern") -> bool:
        """Whether some request matches both."""
        if self.methods is not None and other.methods is not None and not self.methods & other.methods:
            return False
        mine, theirs = len(self.segments), len(other.segments)
        if (mine < theirs and not self.rest) or (theirs < mine and not other.rest):
            return False
        pairs = zip(self.segments, other.segments, strict=False)
        return all(one is None or two is None or one == two for one, two in pairs)


def _split(text: str) -> tuple[frozenset[str] | None, str]:
    """Return the methods and the path."""
    words = text.split()
    if len(words) not in (1, 2) or (len(words) == 2 and words[0].startswith("/")):
        raise ValueError(f"match {shown(text)}: expected methods and one path; {_EXAMPLE}")
    if len(words) == 1:
        return None, words[0]
    methods = words[0].upper().split(",")
    for method in methods:
        if not _METHOD(method):
            raise ValueError(f"match {shown(text)} has an empty or malformed method; separate methods by commas alone")
        if method in ("ALL", "ANY"):
            raise ValueError(f"match {shown(text)} can never match: write {shown(words[1])} for every method")
    if "*" in methods:
        return None, words[1]
    return frozenset([*methods, "HEAD"] if "GET" in methods else methods), words[1]


def _path(text: str, path: str) -> tuple[tuple[str | None, ...], tuple[tuple[str, int], ...], bool]:
    if path == "*":
        return (), (), True
    for foreign, remedy in _FOREIGN:
        if foreign.search(path):
            raise ValueError(f"match {shown(text)} can never match: {remedy}")
    if not path.startswith("/"):
        hint = f"write '{path} *' for all paths" if _METHOD(path) and path.isupper() else "a path begins with a slash"
        raise ValueError(f"match {shown(text)} can never match: {hint}")
    rest = path.endswith("/*")
    literals = re.sub(r"/\{[^/]*\}(?=/|$)", "/x", path.removesuffix("*") if rest else path)
    for wrong, problem in _WRONG:
        if wrong.search(literals):
            raise ValueError(f"match {shown(text)}{problem}")
    segments = (path[1:-1] if rest else path[1:]).removesuffix("/").split("/")
    if segments == [""]:
        return (), (), rest
    if len(segments) > LONGEST:
        raise ValueError(f"match {shown(text[:64])} has {len(segments)} segments: {LONGEST} at most")
    names = [(segment[1:-1], i) for i, segment in enumerate(segments) if segment[:1] + segment[-1:] == "{}"]
    fields = {i for _, i in names}
    for name, _ in names:
        if not name.isidentifier():
            raise ValueError(
                f"match {shown(text)}: a parameter is a name such as {{id}}, not {shown('{' + name + '}')}; "
                "'/*' at the end is all below"
            )
    if len({name for name, _ in names}) < len(names):
        raise ValueError(f"match {shown(text)} names a parameter twice")
    return tuple(None if i in fields else segment.lower() for i, segment in enumerate(segments)), tuple(names), rest
