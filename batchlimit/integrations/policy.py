"""Policy: what RateLimit-Policy and RateLimit say of one rule, by the draft for these header fields."""

import math
from base64 import b64encode
from hashlib import blake2b

from batchlimit import Quota

_LARGEST = 10**15 - 1
"""The largest integer of a structured field."""
_PARTITION_BYTES = 9


class Policy:
    """The parts of one rule's fields that are the same for every request.

    Its slowest bandwidth has the name of the rule; each other has "#" and a number more, which no rule's name has.
    """

    __slots__ = ("_items", "_limits", "_rates", "_slowest", "most")

    def __init__(self, name: str, quota: Quota) -> None:
        self.most = min(quota.largest_cost, _LARGEST)
        parts = quota.bandwidths
        self._slowest = slowest = max(range(len(parts)), key=lambda number: _window(parts[number]))
        order = [slowest, *(number for number in range(len(parts)) if number != slowest)]
        texts = [_text(name), *(_text(f"{name}#{number}") for number in range(2, len(parts) + 1))]
        names = [text.replace("%", "%%") for _, text in sorted(zip(order, texts, strict=True))]
        self._rates = [max(each.rate, self.most / (_LARGEST - 1)) if each.rate else 0.0 for each in parts]
        # To be filled with the `pk`; the limits then with what is left: what they keep for that has each % twice.
        self._items = ", ".join(f"{_item(names[number], parts[number])};pk=%s" for number in order)
        left = [";r=%%d;t=%%d" if rate else ";r=0" for rate in self._rates]
        self._limits = [name.replace("%", "%%") + each + ";pk=%s" for name, each in zip(names, left, strict=True)]

    def rate(self, binding: int | None) -> float:
        """Return the tokens a second of this bandwidth (None: the slowest); no integer is too large for a field."""
        return self._rates[self._slowest if binding is None else binding]

    def key(self, key: str, binding: int | None, secret: bytes) -> tuple[bytes, bytes]:
        """Return the items of RateLimit-Policy, and the item of RateLimit where this bandwidth binds (None: slowest).

        The latter is to be filled with what is left and how long that lasts; with nothing where no token ever comes.
        """
        pk, number = _partition_key(key, secret), self._slowest if binding is None else binding
        return (self._items % ((pk,) * len(self._rates))).encode(), (self._limits[number] % pk).encode()


def _partition_key(key: str, secret: bytes) -> str:
    """Return the `pk` of a key: a keyed hash of 9 bytes, as a byte sequence of a structured field."""
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_PARTITION_BYTES, key=secret[:64]).digest()
    return f":{b64encode(digest).decode()}:"


def _text(name: str) -> str:
    """Return a name as a string of a structured field: printable ASCII, the rest percent-encoded."""
    written = "".join(letter if " " <= letter <= "~" else _percent(letter) for letter in name)
    escaped = written.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _percent(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "surrogatepass"))


def _item(name: str, part: Quota) -> str:
    q = f"{name};q={min(part.burst, _LARGEST)}"
    return f"{q};w={_window(part):.0f}" if part.rate else q


def _window(part: Quota) -> float:
    return min(_LARGEST, max(1, math.ceil(part.burst / part.rate))) if part.rate else math.inf
