"""RuleFile: rules and limits that stand in a file, which may be watched."""

import os
import threading
import weakref
from collections.abc import Iterable
from os import PathLike, fspath
from types import MappingProxyType
from typing import Any, NamedTuple

from batchlimit.base.forks import Forkables
from batchlimit.base.key import by_name
from batchlimit.base.setting import between
from batchlimit.base.unique import Unique
from batchlimit.events import log_event
from batchlimit.quota.overrides.code import CodeFile, CodeLimits
from batchlimit.rules.files.loader import Functions, Loader, decoded, format_of, opened
from batchlimit.rules.rule import Rule, RulesError
from batchlimit.rules.rules import Rules

_Seen = tuple[int, int, int, int]
"""Device, inode, time of the last change (ns) and size of what a path leads to, through links and renames."""
_UNREAD = "it cannot be read: "


class FileContents(NamedTuple):
    """What a file says."""

    rules: Rules  # those of requests; there may be none
    limits: CodeLimits  # those of keys, the keys of rules among them


class RuleFile(Unique, CodeFile):
    r"""Limits for a limiter, and rules for web applications, from a file in TOML or YAML.

    Pass it to limiters in place of quotas, and to middlewares in place of rules. With `watch` all of them go by the
    file as it is, without a restart. A file that cannot be used is refused whole, and what it said before stays.

    Args:
        path: a file in UTF-8 whose name ends with .toml, .yaml or .yml. YAML needs the extra `yaml`.
        watch: whether to look every `interval` seconds whether the path leads to another file, or to one that was
            changed (default False: only `look` looks).
        interval: seconds between two looks (default 1).
        functions: functions by name, for `cost`, `charge` and `exempt` that name one (default none).
        identities: as for Rules (default None: the `identities` of the file).

    Attributes:
        said: what the file says.
        failures: how often it was refused since it was first read.
        problem: why it is refused now; "": it is not.

    Raises:
        RulesError: the file cannot work; the message names file, line, column and what is wrong.
        OSError: the file cannot be read.
        ModuleNotFoundError: it is YAML, and PyYAML is not installed.
        ValueError, TypeError: another argument cannot work.

    Example:
        >>> import os, tempfile
        >>> from batchlimit import RateLimiter
        >>> from batchlimit.rules import RuleFile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "limits.toml")
        ...     with open(path, "w") as file:
        ...         _ = file.write('[limits]\n"search:*" = "50/s burst 100"\n"*" = "1000/s"')
        ...     limiter = RateLimiter.from_url("memory://", RuleFile(path, watch=True))
        ...     limiter.decide("search:ann").limit
        100
    """

    _instead = "make one in each process, from the same path"

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        watch: bool = False,
        interval: float = 1.0,
        functions: Functions = MappingProxyType({}),
        identities: Iterable[str] | None = None,
    ) -> None:
        self._path, self._watch, self._functions = fspath(path), watch, functions
        self._interval = between("interval (seconds)", interval, 0.0, 86_400.0, "(]")  # a day at most
        self._identities = None if identities is None else tuple(identities)
        self._followers: list[tuple[int, weakref.ref[Any]]] = []
        self._closed = False
        self._is_told = True  # all followers heard of what the file says
        self.failures, self.problem = 0, ""
        self._begin()
        self._seen, self._data = self._read()
        self.said = self._understood(self._data)
        _files.add(self)

    def __str__(self) -> str:
        return self._path

    def __repr__(self) -> str:
        return f"<RuleFile {self._path}{', watched' if self._watch else ''}>"

    @property
    def rules(self) -> Rules:
        """The rules of requests that it says; there may be none."""
        return self.said.rules

    @property
    def limits(self) -> CodeLimits:
        """The limits of keys that it says, those of its rules among them."""
        return self.said.limits

    def lead(self, follower: Any, *, last: bool = False) -> None:
        """Have a follower obey what the file says, now and each time that it changes.

        Args:
            follower: a limiter, or the rules before an application; it is kept alive by others.
            last: whether it obeys after the followers that are not `last` (default False). The rules before an
                application do: a rule must not ask for a limit that no limiter has yet.
        """
        with self._lock:
            self._followers = [each for each in self._followers if each[1]() is not None]
            self._followers = sorted([*self._followers, (last, weakref.ref(follower))], key=lambda each: each[0])
            follower.obey(self.said)
            if self._watch and self._thread is None and not self._closed:
                self._start()

    def look(self) -> bool:
        """Look now whether the file has changed, as after a signal; a watched file looks by itself.

        Returns:
            Whether it says something else, which is obeyed from now on. False also if it is refused: see `problem`.
        """
        with self._looking:
            try:
                return self._look()
            except Exception as error:  # noqa: BLE001  whatever is wrong, what it said before stays
                self._refuse(error)
            return False

    def close(self) -> None:
        """Look no more; what the file said last stays. To close twice is no error."""
        self._closed = True
        self._stop.set()

    def after_fork(self) -> None:
        """In the child: nobody looks but its own thread."""
        watched = self._thread is not None
        self._begin()
        if watched and not self._closed:
            self._start()

    def _begin(self) -> None:
        self._lock = threading.RLock()  # held to touch the list of followers
        self._looking = threading.RLock()  # held to look: one thread at a time
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def _start(self) -> None:
        of_it = weakref.ref(self), self._stop, self._interval
        work = threading.Thread(target=_watch, args=of_it, name="batchlimit-rule-file", daemon=True)
        try:
            work.start()
            self._thread = work
        except RuntimeError as error:  # the next follower tries anew
            self._refuse(error)

    def _look(self) -> bool:
        if not self._is_told:  # the process was forked in between
            self._tell(self._living)
        if _seen(os.stat(self._path)) == self._seen and not self.problem.startswith(_UNREAD):
            return False
        self._seen, data = self._read()
        if data == self._data:
            self.problem = ""
            return False
        said = self._understood(data)
        if (said.limits.revision or 0) < (last := self.limits.revision or 0):
            raise RulesError(f"revision: raise it to {last} at least, which keys in use obey", source=self._path)
        with self._lock:
            followers = self._living
            for each in followers:
                if hasattr(each, "review"):
                    each.review(said)
            self._data, self.said, self.problem, self._is_told = data, said, "", False
        log_event("rules.reloaded", "%s has changed, and is obeyed from now on", self._path, path=self._path)
        self._tell(followers)
        return True

    def _tell(self, followers: list[Any]) -> None:
        for each in followers:
            try:
                each.obey(self.said)
            except Exception as error:  # noqa: BLE001  the other followers obey the change as well
                log_event(
                    "rules.refused", "%r does not obey the file", each, error=error, path=self._path, reason=str(error)
                )
        self._is_told = True

    @property
    def _living(self) -> list[Any]:
        return [found for _, each in self._followers if (found := each()) is not None]

    def _read(self) -> tuple[_Seen, bytes]:
        with opened(self._path) as file:
            return _seen(os.fstat(file.fileno())), file.read()

    def _understood(self, data: bytes) -> FileContents:
        loader = Loader(decoded(data, self._path), format_of(self._path), self._path, self._functions)
        found, limits, revision = loader.said()
        rules = loader.together(Rules, found, self._identities)
        if doubled := rules.limits.keys() & limits.keys():
            name = sorted(doubled)[0]
            raise RulesError(f"{name!r} is limited by a rule already", source=self._path, field="limits")
        of_rule = by_name(rules.limits)  # what is said of some keys of a rule comes before what the rule says of all
        own = {name: limit for name, limit in limits.items() if of_rule(name) is not None}
        return FileContents(rules, CodeLimits({**own, **rules.limits, **limits}, revision))

    def _refuse(self, error: Exception) -> None:
        unread = isinstance(error, OSError)
        problem = f"{_UNREAD}{error}" if unread else str(error) or repr(error)
        if problem != self.problem:
            self.problem, self.failures = problem, self.failures + 1
            message = "the file is not used, and what it said before still is: %s"
            log_event("rules.refused", message, problem, path=self._path, reason=problem)


def _seen(found: os.stat_result) -> _Seen:
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _watch(file: "weakref.ref[RuleFile]", stop: threading.Event, interval: float) -> None:
    """Look as long as anyone has the file."""
    while not stop.wait(interval):
        if (watched := file()) is None:
            return
        watched.look()
        del watched


_files: Forkables[RuleFile] = Forkables()


def rules_of(given: "RuleFile | Rules | Iterable[Rule]") -> Rules:
    """Return the rules of requests, as they are now; raises RulesError for a file without any."""
    if isinstance(given, RuleFile):
        if not given.rules:
            raise RulesError("the file has no rules of requests: add [[rules]]", source=str(given))
        return given.rules
    return given if isinstance(given, Rules) else Rules(given)
