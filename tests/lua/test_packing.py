"""The tests bring a `struct` of their own for the scripts: it is the servers' library, as far as they use it."""

import re

import pytest

from batchlimit.stores.scripts import SCRIPTS, script
from tests.lua import packing
from tests.servers import Server

_WHOLE = {1: 255, 2: 65_535, 3: 2**24 - 1, 4: 2**32 - 1, 6: 2**47 - 1, 7: 2**53}


def _numbers(form: str) -> list[list[float]]:
    """Some numbers for each place of a format: large ones, none, and negative ones where they fit."""
    kinds = packing.kinds(form)
    large = [1e300 / 3 if kind == "d" else _WHOLE[packing.size(kind)] >> (kind[0] == "i") for kind in kinds]
    return [large, [0] * len(large), [-1 if kind[0] in "id" else 1 for kind in kinds]]


@pytest.mark.parametrize("form", sorted({form for name in SCRIPTS for form in re.findall(r"'(<\w+)'", script(name))}))
def test_numbers_are_packed_and_unpacked_as_in_a_server(server: Server, form: str) -> None:
    digits = "local t = {struct.unpack(ARGV[1], ARGV[2])} for i, n in ipairs(t) do t[i] = string.format('%.17g', n) end"
    with server.client() as client:
        for numbers in _numbers(form):
            told = [f"{number:.17g}" for number in numbers]
            packed = client.eval("return struct.pack(ARGV[1], unpack(ARGV, 2))", 0, form, *told)
            assert packed == packing.pack(form, *numbers).encode(packing.LETTERS)
            unpacked = client.eval(f"{digits} return t", 0, form, packed)
            assert [float(each) for each in unpacked] == list(packing.unpack(form, packed.decode(packing.LETTERS)))
            assert [float(each) for each in unpacked] == [*numbers, len(packed) + 1]
