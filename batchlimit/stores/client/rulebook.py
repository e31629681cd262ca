"""Where overrides are in Redis: names, commands and replies. `batchlimit.quota.overrides` says what they mean.

The hash has a slot of its own in a cluster. Its name matches no bucket's: those end with a brace.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from batchlimit.errors import BucketUnavailable
from batchlimit.quota.overrides.known import Published
from batchlimit.quota.overrides.overrides import RULE, Entry, is_number

Command = tuple[str, ...]
BUCKET = "bucket:"
"""Before the key of a bucket: under this name the log has what operators did to it."""
_TOLD = "old", "new", "who", "why"


def rules_name(prefix: str) -> str:
    """Return the name of the hash, of a checked prefix."""
    return "{" + prefix + ":}rules"


def log_name(prefix: str) -> str:
    """Return the name of the stream with the last changes."""
    return "{" + prefix + ":}log"


def obeyed_name(prefix: str) -> str:
    """Return the name of a hash that tells what instances obey after the store has lost it."""
    return "{" + prefix + ":obeyed}:rules"


def bucket(replies: Sequence[Any]) -> tuple[dict[str, str], float]:
    """Return the fields of a bucket and the server's clock, by the replies to HGETALL and TIME."""
    fields, clock = replies
    return {text(name): text(value) for name, value in _pairs(fields)}, _instant(clock)


def note(prefix: str, key: str, said: tuple[str, str, str, str]) -> Command:
    """Return the command that appends to the log what was done to a bucket: `said` has old, new, who and why."""
    told = [word for pair in zip(_TOLD, said, strict=True) for word in pair]
    return "XADD", log_name(prefix), "MAXLEN", "~", "1000", "*", "revision", "0", "field", BUCKET + key, *told


def unchanged(replies: Sequence[Any], known: int) -> Published | None:
    """Return what the replies to HGET of the revision and TIME say; None: it is not the known revision."""
    return Published(known, _instant(replies[1]), None) if text(replies[0] or b"0") == str(known) else None


def published(replies: Sequence[Any]) -> Published:
    """Return what the replies to HGETALL and TIME say."""
    fields, clock = replies
    told = {text(name): text(value) for name, value in _pairs(fields)}
    revision = told.get("revision", "0")
    return Published(int(revision) if is_number(revision) else 0, _instant(clock), told)


def entries(reply: Iterable[Any]) -> list[Entry]:
    """Return the changes that a reply to XREVRANGE tells of; those that cannot be read are left out."""
    found = []
    for number, fields in reply:
        said = {text(name): text(value) for name, value in _pairs(fields)}
        name = said.get("field", "")
        if name.startswith((RULE, BUCKET)) and is_number(said.get("revision", "")):
            at = int(text(number).partition("-")[0]) / 1000
            told = [said.get(each, "") for each in _TOLD]
            found.append(Entry(at, int(said["revision"]), name.partition(":")[2], *told))
    return found


def changed(reply: Sequence[Any]) -> tuple[bool, int]:
    """Return whether a change was made, and the revision that holds now."""
    done, revision = reply
    return bool(done), int(revision)


def text(value: str | bytes) -> str:
    """Return text, also where a client does not decode replies. Bytes that are no UTF-8 stay visible."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


def first_error(replies: Sequence[Any]) -> Sequence[Any]:
    """Return the replies; raise the first error among them."""
    for each in replies:
        if isinstance(each, Exception):
            raise each
    return replies


def _instant(clock: Any) -> float:
    """Return what the reply to TIME says (seconds since 1970)."""
    seconds, microseconds = clock
    return int(seconds) + int(microseconds) / 1e6


def _pairs(reply: Any) -> Iterable[tuple[Any, Any]]:
    """Return the pairs of a hash, which some clients have in a dict and others in a list."""
    if isinstance(reply, Mapping):
        return reply.items()
    if not isinstance(reply, Sequence) or len(reply) % 2:
        raise BucketUnavailable("what lies at the name of the rules is no hash", code="DAMAGED")
    return zip(reply[::2], reply[1::2], strict=True)
