"""Texts that a stranger may choose, and that a terminal, a table or a log would obey."""

import re

HOSTILE = (
    "\x1b]0;owned\x07",  # the title of the window
    "\x1b[2J\x1b[H",  # wipes the screen
    "\x9b31m",  # C1: red, in one character
    "nul\x00del\x7f",
    "ann\nroot  1000000/s  0.0",  # another row
    "ann\r\x1b[Kroot",  # this row, written over
    "a\tb\x0bc\x0cd\x85e\u2028f\u2029g",  # each begins a line somewhere
    "\u202egnp.exe\u2066",  # read from right to left
    "ad\u200bmin\ufeff\u00ad",  # what nobody sees
    "\U000e0041\ue000",
    "[red]ann[/red][/]",  # markup and names of pictures, of the library that draws tables
    "user:key:1 :warning:",
)
"""Without surrogates, which no store takes."""


def obeyed(text: str) -> set[str]:
    """Return what a terminal would obey: characters, and a row that begins as one of HOSTILE would have it."""
    return {each for each in text if not each.isprintable() and each != "\n"} | set(re.findall(r"\n *root", text))
