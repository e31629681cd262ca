"""The options after the ? of a URL, and their values. A message names the option and never shows its value."""

import codecs
import difflib
import inspect
import math
import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote_plus

import redis

SENTINEL = "sentinel_"
"""The prefix of options for the sentinels alone."""

Read = Callable[[str], Any]
Options = dict[str, Any]

_TRUTH = dict.fromkeys(("1", "t", "true", "y", "yes", "on"), True) | dict.fromkeys(
    ("0", "f", "false", "n", "no", "off"), False
)
_SECRET = ("password", "ssl_password", "sentinel_password", "sentinel_ssl_password")


class InvalidUrl(ValueError):
    """A URL is wrong. The message shows nothing of it but names of options."""


def read_options(query: str) -> Options:
    """Return the options of a URL's query, each with the type that redis-py takes; raise InvalidUrl for a wrong one."""
    found: Options = {}
    before = ""
    for part in filter(None, query.split("&")):
        name, equals, value = part.partition("=")
        if not (equals and value and re.fullmatch(r"\w+", name, re.ASCII)):
            place = f"the option {before!r}" if before else "the ?"
            problem = "is not of the form name=value: percent-encode what is special in a value"
            raise InvalidUrl(f"what follows {place} {problem}")
        if name in found:
            raise InvalidUrl(f"the option {name!r} is there twice: keep one of them")
        found[name] = _read(name, unquote_plus(value), before)
        before = name
    return found


def _read(name: str, value: str, before: str) -> Any:
    plain = name.removeprefix(SENTINEL)
    if plain not in OPTIONS:
        if before in _SECRET:  # it may be the rest of that password
            raise InvalidUrl(f"what follows the option {before!r} is no option: percent-encode the & in its value")
        if name in _BEFORE:
            raise InvalidUrl(f"the option {name!r} belongs before the ?: {_BEFORE[name]}")
        close = difflib.get_close_matches(name, OPTIONS, 1)
        meant = f"did you mean {close[0]!r}?" if close else "docs/redis.md lists those that a URL may have"
        raise InvalidUrl(f"a URL has no option {name!r}: {meant}")
    expected, read = OPTIONS[plain]
    try:
        return read(value)
    except (ValueError, LookupError):
        pass  # the exception may show the value
    raise InvalidUrl(f"the option {name!r} must be {expected}")


def check_known(names: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raise InvalidUrl for an option that this version of redis-py does not have for `what`."""
    for name in set(names).difference(known):
        raise InvalidUrl(f"redis-py {redis.__version__} has no option {name!r} for {what}: leave it out")


def parameters(kind: Any) -> set[str]:
    """Return the names of a class's keyword arguments, and those of its base classes."""
    makers: list[Any] = list(kind.__mro__)
    return {name for each in makers for name in inspect.signature(each.__init__).parameters}


def check_tls(options: Mapping[str, Any]) -> None:
    """Raise InvalidUrl for options of TLS that allow no connection. This reads the files that they name."""
    if options.get("ssl_check_hostname") and options.get("ssl_cert_reqs") == "none":
        raise InvalidUrl(
            "the option 'ssl_check_hostname' checks nothing with ssl_cert_reqs=none: leave one of them out"
        )
    if "ssl_keyfile" in options and "ssl_certfile" not in options:
        raise InvalidUrl("the option 'ssl_keyfile' needs 'ssl_certfile' with it")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for name, use in _FILES.items():
        if name in options:
            reason = ""
            try:
                use(context, options)
            except ssl.SSLError as error:
                said = getattr(error, "reason", None) or "OpenSSL cannot read it"
                reason = f"{said} (a file must be in PEM form, and ssl_password its key's)"
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or "is there something in it?"
            if reason:
                raise InvalidUrl(f"the option {name!r} cannot be used: {reason}")


_FILES: dict[str, Callable[[ssl.SSLContext, Mapping[str, Any]], None]] = {
    "ssl_ca_certs": lambda context, options: context.load_verify_locations(cafile=options["ssl_ca_certs"]),
    "ssl_ca_path": lambda context, options: context.load_verify_locations(capath=options["ssl_ca_path"]),
    "ssl_ca_data": lambda context, options: context.load_verify_locations(cadata=options["ssl_ca_data"]),
    # With a password, even an empty one: without one OpenSSL would ask for it at the terminal.
    "ssl_certfile": lambda context, options: context.load_cert_chain(
        options["ssl_certfile"], options.get("ssl_keyfile"), options.get("ssl_password", "")
    ),
    "ssl_ciphers": lambda context, options: context.set_ciphers(options["ssl_ciphers"]),
}


def _whole(least: int, most: float = math.inf) -> Read:
    def read(value: str) -> int:
        if not re.fullmatch("[0-9]{1,9}", value, re.ASCII) or not least <= int(value) <= most:
            raise ValueError
        return int(value)

    return read


def _seconds(value: str) -> float:
    seconds = float(value)
    if not 0.0 < seconds < math.inf:
        raise ValueError
    return seconds


def _name(value: str) -> str:
    if not re.fullmatch("[!-~]+", value):
        raise ValueError
    return value


_REQUIRED = ("none", "optional", "required")
_BEFORE = {"host": "redis://host", "port": "redis://host:6379", "path": "unix:///path"}


def _all(names: str, form: str, read: Read) -> dict[str, tuple[str, Read]]:
    return dict.fromkeys(names.split(), (form, read))


OPTIONS: dict[str, tuple[str, Read]] = {
    **_all(
        "lib_name lib_version password ssl_ca_certs ssl_ca_data ssl_ca_path ssl_certfile ssl_ciphers ssl_keyfile "
        "ssl_password username",
        "text",
        str,
    ),
    **_all(
        "decode_responses legacy_responses retry_on_timeout socket_keepalive ssl_check_hostname ssl_validate_ocsp "
        "ssl_validate_ocsp_stapled",
        "true or false",
        lambda value: _TRUTH[value.lower()],
    ),
    **_all("socket_connect_timeout socket_timeout", "a number of seconds above 0", _seconds),
    **_all(
        "ssl_exclude_verify_flags ssl_include_verify_flags",
        "names of ssl.VerifyFlags, with commas between",
        lambda value: [ssl.VerifyFlags[each.strip()] for each in value.strip("[]").split(",")],
    ),
    "client_name": ("of letters, digits and signs, without spaces", _name),
    "db": ("a whole number of at least 0", _whole(0)),
    "encoding": ("an encoding that Python knows", lambda value: codecs.lookup(value).name),
    "encoding_errors": (
        "a way to treat errors that Python knows",
        lambda value: (codecs.lookup_error(value), value)[1],
    ),
    "health_check_interval": ("a whole number of seconds of at least 0", _whole(0)),
    "max_connections": ("a whole number of at least 1", _whole(1)),
    "protocol": ("2 or 3", _whole(2, 3)),
    "socket_read_size": ("a whole number of bytes of at least 1", _whole(1)),
    "ssl_cert_reqs": ("none, optional or required", lambda value: _REQUIRED[_REQUIRED.index(value.lower())]),
    "ssl_min_version": ("771 (TLS 1.2) or 772 (TLS 1.3)", lambda value: ssl.TLSVersion(_whole(771, 772)(value))),
}
"""By name: the expected form, and a parser. Other options of redis-py are no text: for those make your own client."""
