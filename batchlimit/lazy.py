"""Names of a package that are imported when somebody first asks for them."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def names(
    package: str, homes: Mapping[str, str], parts: str = ""
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package.

    Any thread may ask: where two do so at once, one of them waits for the other's import, and both get the same.

    Args:
        package: its name.
        homes: the modules that its names are defined in, each with those names, with spaces between.
        parts: modules of the package that are attributes of it, though nobody imported them.

    Returns:
        Both functions.
    """
    home = {name: module for module, found in homes.items() for name in found.split()}
    modules = parts.split()

    def get(name: str) -> object:
        if name in home:
            found = getattr(import_module(home[name]), name)
            setattr(sys.modules[package], name, found)  # from now on it is there without asking
            return found
        if name in modules:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names_of() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home, *modules})

    return get, names_of
