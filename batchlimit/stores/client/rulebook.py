"""Where overrides are in Redis: names, commands and replies. `batchlimit.quota.overrides` says what they mean.

The hash has a slot of its own in a cluster. Its name matches no bucket's: those end with a brace.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from batchlimit.base.steps import Steps, followed
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.overrides.known import Published
from batchlimit.quota.overrides.overrides import FORMAT, MOST, RULE, Change, Entry, Overrides, is_number
from batchlimit.stores.client.scripts import bucket_name

Command = tuple[str, ...]
_BUCKET = "bucket:"
"""Before the key of a bucket: under this name the log has what operators did to it."""


def rules_name(prefix: str) -> str:
    """Return the name of the hash, of a checked prefix."""
    return "{" + prefix + ":}rules"


class RedisRules:
    """The overrides under one prefix. `ask` and `run` are called or awaited, by `follow`, as of threads or tasks."""

    __slots__ = ("_ask", "_follow", "_log", "_name", "_obeyed", "_prefix", "_run")

    def __init__(
        self, ask: Callable[..., Any], run: Callable[..., Any], follow: Callable[[Steps[Any]], Any], prefix: str
    ) -> None:
        self._ask, self._run, self._follow, self._prefix = ask, run, follow, prefix
        self._name, self._log = rules_name(prefix), "{" + prefix + ":}log"  # a hash, and a stream of the last changes
        self._obeyed = "{" + prefix + ":obeyed}:rules"  # what instances obey after the store has lost it

    @followed
    def read(self, known: int) -> Steps[Published]:
        revision, now = yield self._ask(self._name, ("HGET", self._name, "revision"), ("TIME",))
        if text(revision or b"0") == str(known):
            return Published(known, _instant(now), None)
        fields, now = yield self._ask(self._name, ("HGETALL", self._name), ("TIME",))
        told = texts(fields)
        revision = told.get("revision", "0")
        return Published(int(revision) if is_number(revision) else 0, _instant(now), told)

    @followed
    def remind(self, overrides: Overrides) -> Steps[None]:
        name, revision = self._obeyed, str(overrides.revision)
        keep = "PEXPIRE", name, "60000"
        told, _ = yield self._ask(name, ("HGET", name, "revision"), keep)
        if text(told or b"") != revision:
            said = json.dumps(overrides.fields)
            yield self._ask(name, ("HSET", name, "revision", revision, "said", said), keep)

    def change(self, change: Change) -> Any:
        said = [word for name, told in change.texts.items() for word in (RULE + name, told)]
        arguments = [self._log, str(change.revision), FORMAT, str(MOST), change.who, change.why, *said]
        return self._run("change", self._name, arguments, lambda reply: (bool(reply[0]), int(reply[1])))

    def note(self, key: str, old: str, new: str, who: str, why: str) -> None:
        """See RuleStore.note; for threads."""
        said = "field", _BUCKET + key, "old", old, "new", new, "who", who, "why", why
        self._ask(self._log, ("XADD", self._log, "MAXLEN", "~", "1000", "*", "revision", "0", *said))

    @followed
    def log(self, count: int) -> Steps[list[Entry]]:
        (reply,) = yield self._ask(self._log, ("XREVRANGE", self._log, "+", "-", "COUNT", str(count)))
        found = []
        for number, fields in reply:
            said = texts(fields)
            name, revision = said.get("field", ""), said.get("revision", "")
            if name.startswith((RULE, _BUCKET)) and is_number(revision):  # else it cannot be read
                at = int(text(number).partition("-")[0]) / 1000
                told = [said.get(each, "") for each in ("old", "new", "who", "why")]
                found.append(Entry(at, int(revision), name.partition(":")[2], *told))
        return found

    def obeyed(self) -> Overrides:
        """Return what instances have reminded of within the last minute; for threads."""
        (told,) = self._ask(self._obeyed, ("HGET", self._obeyed, "said"))
        return Overrides.read(json.loads(text(told))) if told else Overrides()

    def bucket(self, key: str) -> tuple[dict[str, str], float]:
        """Return the fields of a bucket, and the server's clock (seconds since 1970); for threads."""
        name = bucket_name(self._prefix, key)
        fields, clock = self._ask(name, ("HGETALL", name), ("TIME",))
        return texts(fields), _instant(clock)


def text(value: str | bytes) -> str:
    """Return text, also where a client does not decode replies. Bytes that are no UTF-8 stay visible."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


def texts(reply: Any) -> dict[str, str]:
    """Return the fields of a hash, which some clients have in a dict and others in a list."""
    if isinstance(reply, Mapping):
        return {text(name): text(value) for name, value in reply.items()}
    if not isinstance(reply, Sequence) or len(reply) % 2:
        raise BucketUnavailable("what lies at the name of the rules is no hash", code="DAMAGED")
    return {text(name): text(value) for name, value in zip(reply[::2], reply[1::2], strict=True)}


def _instant(clock: Any) -> float:
    """Return what the reply to TIME says (seconds since 1970)."""
    seconds, microseconds = clock
    return int(seconds) + int(microseconds) / 1e6
