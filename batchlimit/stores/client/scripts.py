"""The Lua scripts as text. Each consists of several files, one after the other."""

from functools import cache
from hashlib import sha1
from importlib.resources import files
from pathlib import Path

SCRIPTS = {
    "take": ("bucket", "sweep", "refill", "take", "write"),
    "give_back": ("bucket", "refill", "give_back", "write"),
    "peek": ("bucket", "refill", "peek"),
}
"""The files in `lua/` of each script, in order: they read, compute and write."""

_PACKAGED = files("batchlimit") / "lua"
_CHECKOUT = Path(__file__).parents[3] / "lua"
"""An editable install has no copy of the Lua, and reads the checkout's."""


@cache
def script(name: str) -> str:
    """Return the whole text of one of SCRIPTS, as the server runs it."""
    return "\n".join(_read(part) for part in SCRIPTS[name])


@cache
def digest(name: str) -> str:
    """Return the SHA1 by which a server knows the script."""
    return sha1(script(name).encode(), usedforsecurity=False).hexdigest()


def _read(name: str) -> str:
    packaged = _PACKAGED / f"{name}.lua"
    return (packaged if packaged.is_file() else _CHECKOUT / f"{name}.lua").read_text(encoding="utf-8")
