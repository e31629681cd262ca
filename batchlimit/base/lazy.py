"""Names of a package that are imported when somebody first asks for them, and libraries that are not installed."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module


def names(
    package: str, homes: Mapping[str, str], *, modules: str = "", distribution: str | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package, which any thread may ask.

    Args:
        package: its name.
        homes: the modules that its names are defined in, each with those names, with spaces between.
        modules: public modules that are attributes of the package without an import, with spaces between.
        distribution: the installed distribution whose version is the package's `__version__` (None: no `__version__`).
    """
    home = {name: module for module, found in homes.items() for name in found.split()}
    public = {*home, *modules.split(), *(["__version__"] if distribution else [])}

    def get(name: str) -> object:
        if name not in public:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if name in home:
            try:
                found = getattr(import_module(home[name]), name)
            except AttributeError as error:  # of it `from package import name` would say nothing
                raise ImportError(f"{home[name]} cannot be imported: {error}") from error
        elif name == "__version__":
            from importlib.metadata import PackageNotFoundError, version

            try:
                found = version(str(distribution))
            except PackageNotFoundError:  # a copy of the files alone
                raise AttributeError(f"{distribution} is not installed, so it has no __version__") from None
        else:
            return import_module(f"{package}.{name}")
        setattr(sys.modules[package], name, found)  # from now on it is there without asking
        return found

    return get, lambda: sorted({*public, *(name for name in vars(sys.modules[package]) if name.startswith("__"))})


@contextmanager
def needed(module: str, extra: str, library: str = "", name: str = "") -> Iterator[None]:
    """Import in this block what a module needs; if it is not installed, say which extra has it, and its `name`."""
    try:
        yield
    except ModuleNotFoundError as error:
        told = f"{module} needs {library or extra}, of the '{extra}' extra: pip install 'batchlimit[{extra}]'"
        raise ModuleNotFoundError(told, name=name or extra) from error
