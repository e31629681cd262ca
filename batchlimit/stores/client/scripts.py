"""The Lua of the project as text: a few scripts, each made of files that follow one another."""

from functools import cache
from hashlib import sha1
from importlib.resources import files
from pathlib import Path

SCRIPTS = {
    "take": ("bucket", "sweep", "refill", "take", "write"),
    "give_back": ("bucket", "refill", "give_back", "write"),
    "peek": ("bucket", "refill", "peek"),
}
"""Each by its name, with the files in `lua/` that it consists of: to read, to compute, to write, in that order."""

_PACKAGED = files("batchlimit") / "lua"
_CHECKOUT = Path(__file__).parents[3] / "lua"
"""An editable install has no copy of the Lua; it reads the one in the checkout."""


@cache
def script(name: str) -> str:
    """Return the whole text of one of SCRIPTS, as the server runs it."""
    return "\n".join(_read(part) for part in SCRIPTS[name])


@cache
def digest(name: str) -> str:
    """Return what a server calls the script that it has loaded."""
    return sha1(script(name).encode(), usedforsecurity=False).hexdigest()


def _read(name: str) -> str:
    packaged = _PACKAGED / f"{name}.lua"
    return (packaged if packaged.is_file() else _CHECKOUT / f"{name}.lua").read_text(encoding="utf-8")
