"""What holders of permits wrote down."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Hold:
    """One permit of a caller.

    Attributes:
        start: When its holder began to work (ns of the machine's monotonic clock).
        end: When its holder ended, or heard that the permit was lost (ns).
        token: Its number.
        wait: How long the caller had asked for it, refusals and errors included (ns).
    """

    start: int
    end: int
    token: int = 0
    wait: int = 0


class Log:
    """Writes down holds, so that a killed process leaves what it had begun. For all threads of a process.

    With `buffered` it writes many at a time, the last ones by `close`: for processes that nobody kills.
    """

    def __init__(self, path: Path, buffered: bool = False) -> None:
        self._file: BinaryIO = path.open("ab", 1 << 20 if buffered else 0)

    def start(self, number: int, now: int, token: int, wait: int = 0) -> None:
        self._file.write(f"S {number} {now} {token} {wait}\n".encode())

    def end(self, number: int, now: int) -> None:
        self._file.write(f"E {number} {now}\n".encode())

    def close(self) -> None:
        self._file.close()


def read(path: Path, killed: int) -> Iterator[Hold]:
    """Yield what a process logged; what it had not ended was under way until it was killed."""
    begun: dict[str, tuple[int, int, int]] = {}
    for line in path.read_text().splitlines():
        match line.split():
            case ["S", number, start, token, wait]:
                begun[number] = int(start), int(token), int(wait)
            case ["E", number, end]:
                start_ns, token_, wait_ = begun.pop(number)
                yield Hold(start_ns, max(start_ns, int(end)), token_, wait_)
            case _:  # the last line of a killed process
                pass
    for start_ns, token_, wait_ in begun.values():
        yield Hold(start_ns, max(start_ns, killed), token_, wait_)
