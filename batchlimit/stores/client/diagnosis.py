"""What an error of a server means: for the store or one key, what an operator can do, and what of it nobody may see.

Tracebacks lose the frames that hold passwords: error reporters capture the local variables of all frames. redis-py
holds passwords in `auth_args` and in the keyword arguments of its clients; ssl and asyncio in the bytes to send. Our
stores hold redis-py clients, of which some versions show the password. The server's message stays, and so do all other
frames, such as those of a signal handler that raised during a call.
"""

import errno
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from redis import exceptions

from batchlimit.base.redaction import escaped, redacted
from batchlimit.errors import BatchLimitError, BucketUnavailable, StoreUnavailable

E = TypeVar("E", bound=BaseException)

_STORES = __name__.rpartition(".")[0]
_HIDDEN = frozenset({"redis", "hiredis", *sys.stdlib_module_names})


def untraced(error: E, handled: BaseException | None = None) -> E:
    """Remove those frames from an error and from its causes; return the error.

    What the caller of the limiter was handling at the call (`handled`) is not ours, and stays as it is.
    """
    for each in _chain(error, {id(handled)}):
        each.__traceback__ = _rest(each.__traceback__)
    return error


def _chain(error: BaseException | None, seen: set[int]) -> Iterator[BaseException]:
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    yield error
    for led in (error.__cause__, error.__context__, *getattr(error, "exceptions", ())):
        if not isinstance(led, BatchLimitError):  # one that a user has by now, and no password is in it
            yield from _chain(led, seen)


def _rest(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames that are hidden."""
    kept: list[TracebackType] = []
    while trace is not None:
        module: str = trace.tb_frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in _HIDDEN and not f"{module}.".startswith(f"{_STORES}."):
            kept.append(trace)
        trace = trace.tb_next
    rest = None
    for each in reversed(kept):
        rest = TracebackType(rest, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return rest


FAILURES = (exceptions.RedisError, exceptions.RedisClusterException, OSError)
"""All that redis-py raises when a call goes wrong."""


@dataclass(frozen=True, slots=True)
class Symptom:
    """A hint for the operator, and whether the error concerns one key alone."""

    hint: str
    of_key: bool = False


_ELSEWHERE = Symptom(
    "the server is a node of a cluster, and another node has this key: use redis+cluster://", of_key=True
)

_OTHER = "the bucket's name, or that of the overrides (`batchlimit doctor` tells), holds something else: delete it"

SYMPTOMS = {
    "ASK": _ELSEWHERE,
    "BUSY": Symptom("a script does not end: SCRIPT KILL ends it, unless it has written"),
    "CLUSTERDOWN": Symptom("nodes of the cluster are missing, or the key's slot has none: see CLUSTER INFO"),
    "CROSSSLOT": _ELSEWHERE,
    "DENIED": Symptom("the server's protected mode: give it a password, or bind it to the right address"),
    "FORMAT": Symptom("another release of batchlimit wrote it: see docs/upgrading.md", of_key=True),
    "LOADING": Symptom("the server has just started and reads its data: it will be back by itself"),
    "MASTERDOWN": Symptom("the server is a replica without its primary: connect to the primary"),
    "MISCONF": Symptom("the server cannot save to its disk: mend that, or set stop-writes-on-bgsave-error no"),
    "MOVED": _ELSEWHERE,
    "NOAUTH": Symptom("the server wants a password: redis://:password@host, or unix:///path?password=..."),
    "NOPERM": Symptom("the user's ACL lacks a command or the keys: docs/redis.md has the rule"),
    "NOPRIMARY": Symptom("no sentinel answers, or none knows a primary of this name: check both in the URL"),
    "NOREPLICAS": Symptom("too few replicas are connected for the server's min-replicas-to-write"),
    "OOM": Symptom("the server's memory is full: raise its maxmemory, or remove other keys"),
    "PROTOCOL": Symptom("what answers there is no Redis: check the address"),
    "READONLY": Symptom("the server is a replica: connect to the primary, or by redis+sentinel://, redis+cluster://"),
    "REFUSED": Symptom("nobody listens there: start the server, or check the address"),
    "TRYAGAIN": Symptom("the key's slot is moving to another node: it will be over by itself"),
    "UNREACHABLE": Symptom("check the address and the way there: name server, network, rights of a socket"),
    "WRONGPASS": Symptom("the name or the password in the URL is wrong, or the user is disabled"),
    "WRONGTYPE": Symptom(_OTHER + ", or use another prefix", of_key=True),
}
"""Error codes of Redis and Valkey by name, FORMAT, which is of lua/, and codes of `_plight`."""

ELSEWHERE = frozenset(code for code, symptom in SYMPTOMS.items() if symptom is _ELSEWHERE)
"""Codes of a cluster node for keys of another node."""

PASSING = frozenset({"MASTERDOWN", "NOAUTH", "READONLY"})
"""Codes after which a new connection may help: to a new primary at the same address, or one that logs in again."""

_SCRIPT = Symptom("a script failed: what lies at the bucket's name may not be a bucket: delete it", of_key=True)
_TLS = Symptom(
    "TLS failed: is its certificate for this name, and its authority known (?ssl_ca_certs=FILE)? Does it use TLS?"
)
_CUT = Symptom("the server ended the connection: has it restarted, or does it expect TLS (rediss://)?")
_NO_SCRIPTS = Symptom("the server runs no scripts; fakeredis does with its extra: pip install 'fakeredis[lua]'")
_NO_SENTINEL = Symptom("the server is no sentinel: give the address of one, mostly port 26379, or use redis://")
_NOTHING = Symptom("")

# redis-py removes the code from the text if it has a class for it; the first class that fits counts.
_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.MovedError, "MOVED"),
    (exceptions.AskError, "ASK"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.ClusterCrossSlotError, "CROSSSLOT"),
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.TryAgainError, "TRYAGAIN"),
)
# Without a class the text begins with the code. Redis before 7 wraps the error of a command in a script:
# "Error running script (call to f_...): @user_script:240: -OOM command not allowed when ...".
_CODE = re.compile(r"(?:^|: -?|@user_script: )([A-Z]{2,})\b")

_CROWDED = "max number of clients"  # an error of the connection for redis-py, though the server says it
_NUMBER = re.compile(r"\[Errno (\d+)\]|Error (\d+) connecting")
_NUMBERS = {
    errno.ECONNREFUSED: "REFUSED",
    errno.ENOENT: "REFUSED",
    errno.ECONNRESET: "LOST",
    errno.EPIPE: "LOST",
    errno.ETIMEDOUT: "TIMEOUT",
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "OTHER"),
}


def failure(error: Exception, address: str, handled: BaseException | None = None) -> StoreUnavailable:
    """Return the exception to raise, from `error`, for a failed call of the server at `address`; no password stays."""
    for each in _chain(error, {id(handled)}):
        each.args = tuple(redacted(said) if isinstance(said, str) else said for said in each.args)
    untraced(error, handled)
    if _finds_no_primary(error):
        # It repeats each sentinel's answer with the repr of its client, in some versions with the password.
        error.args = (str(error).partition(" : ")[0],)
    code = code_of(error)
    plight, symptom = (code, SYMPTOMS[code]) if code else _plight(error)
    said = escaped(str(error)) or "no reason given"
    told = f"{address} failed: {said if said.startswith(code or ' ') else f'{code or type(error).__name__}: {said}'}"
    # An ASK that redis-py's client for tasks did not follow to its end concerns only the slot that moves.
    kind = BucketUnavailable if symptom.of_key or "TTL exhausted" in said else StoreUnavailable
    hint = symptom.hint or SYMPTOMS.get(plight, _NOTHING).hint
    message = f"{told} ({hint})" if hint else told
    return kind(message, address=address or None, code=plight)


def code_of(error: Exception) -> str:
    """Return the server's error code, even if it is wrapped, or "" if it is not one of SYMPTOMS."""
    for kind, code in _KINDS:
        if isinstance(error, kind):
            return code
    if isinstance(error, exceptions.AuthenticationError):
        return "NOAUTH" if "required" in str(error) or "HELLO must" in str(error) else "WRONGPASS"
    said = str(error)
    known: list[str] = [code for code in _CODE.findall(said) if code in SYMPTOMS]
    if known:
        return known[-1]
    # Only Redis 7 sends a code for commands that the ACL forbids a script.
    return "NOPERM" if "ACL failure in script" in said or "executing the script can't" in said else ""


def _plight(error: Exception) -> tuple[str, Symptom]:
    """Return the code of a failure for which the server gave none of SYMPTOMS, see StoreUnavailable; and what it is."""
    said, is_reply = str(error), isinstance(error, exceptions.ResponseError)
    if is_reply and "user_script" in said and "command called from" not in said:
        return "DAMAGED", _SCRIPT
    symptom = _CUT if "closed by server" in said or "reset by peer" in said else _NOTHING
    symptom = _NO_SCRIPTS if "unknown command 'evalsha'" in said.lower() else symptom
    symptom = _NO_SENTINEL if "unknown command 'sentinel'" in said.lower() else symptom
    symptom = _TLS if "SSL" in said else symptom
    if is_reply or _CROWDED in said:
        return "ERR", symptom
    if isinstance(error, exceptions.InvalidResponse):
        return "PROTOCOL", symptom
    if _finds_no_primary(error):
        return "NOPRIMARY", symptom
    if isinstance(error, exceptions.TimeoutError | TimeoutError):
        return "TIMEOUT", symptom
    if symptom is _TLS:
        return "TLS", symptom
    if number := _NUMBER.search(said):
        return _NUMBERS.get(int(number[1] or number[2]), "UNREACHABLE"), symptom
    if " connecting to " in said:
        return "UNREACHABLE", symptom
    return "LOST" if isinstance(error, exceptions.ConnectionError | OSError) else "OTHER", symptom


def _finds_no_primary(error: Exception) -> bool:
    """By its name, because redis-py has a class for each API, and both are slow to import."""
    return type(error).__name__ == "MasterNotFoundError"
