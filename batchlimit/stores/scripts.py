"""The Lua of the project as text: each script with the part that all of them begin with."""

from functools import cache
from hashlib import sha1
from importlib.resources import files
from pathlib import Path

SCRIPTS = ("take", "give_back", "peek")
_PACKAGED = files("batchlimit") / "lua"
_CHECKOUT = Path(__file__).parents[2] / "lua"
"""An editable install has no copy of the Lua; it reads the one in the checkout."""


@cache
def script(name: str) -> str:
    """Return the whole text of one of SCRIPTS, as the server runs it."""
    return f"{_read('bucket')}\n{_read(name)}"


@cache
def digest(name: str) -> str:
    """Return what a server calls the script that it has loaded."""
    return sha1(script(name).encode(), usedforsecurity=False).hexdigest()


def _read(name: str) -> str:
    packaged = _PACKAGED / f"{name}.lua"
    return (packaged if packaged.is_file() else _CHECKOUT / f"{name}.lua").read_text(encoding="utf-8")
