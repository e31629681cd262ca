r"""The paths that one path may be for an application: without `//`, `..`, `\` or where it is mounted, decoded again.

A rule applies if one of these readings matches. A framework, a proxy or the application may read a path in any of these
ways, and a client must not get around a rule by writing its path differently. A reading too many costs a client a token
at a path that the application answers with 404.
"""

import re
from urllib.parse import unquote

DECODINGS = 3
"""How often a path is decoded again. Nobody decodes a path four times."""

_dots = re.compile(r"/\.\.?(?:/|$)").search
_slashes = re.compile(r"/{2,}").sub


def is_odd(path: str) -> bool:
    """Whether a path has other readings than itself."""
    return (
        "//" in path or "%" in path or "\\" in path or path[-1:] == "\n" or ("/." in path and _dots(path) is not None)
    )


def readings(path: str, root: str = "") -> list[str]:
    """Return the readings of a path, itself first, each once; those below `root` without it too."""
    found = [path]
    if is_odd(path):
        for text in _decoded(path):
            plain = text.replace("\\", "/").removesuffix("\n")  # "$" of a route matches before a newline too
            found += (text, _slashes("/", plain), _resolved(_slashes("/", plain)), _slashes("/", _resolved(plain)))
    if root:
        found += [text[len(root) :] for text in found if f"{text}/".startswith(f"{root}/")]
    return list(dict.fromkeys(found))


def _decoded(path: str) -> list[str]:
    found = [path]
    while len(found) <= DECODINGS and (text := unquote(found[-1])) != found[-1]:
        found.append(text)
    return found


def _resolved(path: str) -> str:
    """Return the path without "." and ".." segments."""
    kept: list[str] = []
    for segment in path.lstrip("/").split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    return "/" + "/".join(kept)
