"""The part of `struct` that the scripts use, a library that servers bring for Lua: numbers in so many bytes each.

A format is `<`, for little-endian, and then a letter for each number: d is a double, B a byte, and i or I and a figure
a signed or unsigned integer of so many bytes.
"""

import re
import struct

LETTERS = "latin-1"
"""How packed bytes are text: one letter each."""
_NUMBER = re.compile(r"d|B|[iI][1-8]")


def letters(argument: object) -> str:
    """Return an argument as the scripts see it."""
    return argument.decode(LETTERS) if isinstance(argument, bytes) else str(argument).encode().decode(LETTERS)


def pack(form: str, *numbers: float) -> str:
    """As struct.pack; but it raises OverflowError where a server would keep a part of a number."""
    return b"".join(_packed(kind, each) for kind, each in zip(kinds(form), numbers, strict=True)).decode(LETTERS)


def unpack(form: str, text: str, at: float = 1) -> tuple[float, ...]:
    """As struct.unpack: the numbers, and the place behind them."""
    data, place, found = text.encode(LETTERS), int(at) - 1, list[float]()
    for kind in kinds(form):
        part = data[place : place + size(kind)]
        assert len(part) == size(kind), f"{form} ends before {text!r}[{at}:]"
        found.append(
            struct.unpack("<d", part)[0] if kind == "d" else int.from_bytes(part, "little", signed=kind[0] == "i")
        )
        place += size(kind)
    return (*found, place + 1)


def kinds(form: str) -> list[str]:
    """Return the letters of a format, with their figures."""
    assert re.fullmatch(rf"<({_NUMBER.pattern})*", form), form
    return _NUMBER.findall(form)


def size(kind: str) -> int:
    """Return how many bytes a number of this kind takes."""
    return {"d": 8, "B": 1}.get(kind) or int(kind[1])


def _packed(kind: str, number: float) -> bytes:
    if kind == "d":
        return struct.pack("<d", number)
    assert number == int(number), f"{number} is no integer"
    return int(number).to_bytes(size(kind), "little", signed=kind[0] == "i")
