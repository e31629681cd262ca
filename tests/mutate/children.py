"""Processes that each answer a question of yes or no."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NoReturn, TypeVar

_NO, _YES, _BROKEN = 0, 1, 2

Question = TypeVar("Question")


def in_children(
    questions: list[Question], jobs: int, is_so: Callable[[Question], bool], seconds: Callable[[Question], float]
) -> Iterator[tuple[Question, bool]]:
    """Each question, and whether the answer was no; so many processes at a time.

    One that dies, or takes longer than `seconds` of its question, means yes.
    """
    waiting, under_way = questions[::-1], dict[int, tuple[Question, float]]()
    while waiting or under_way:
        while waiting and len(under_way) < jobs:
            question = waiting.pop()
            under_way[_forked(question, is_so)] = question, time.monotonic() + seconds(question)
        for pid, (question, latest) in list(under_way.items()):
            if time.monotonic() > latest:
                os.killpg(pid, signal.SIGKILL)
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with suppress(OSError):  # nothing that it began is left
                    os.killpg(pid, signal.SIGKILL)
                del under_way[pid]
                if os.waitstatus_to_exitcode(status) == _BROKEN:
                    raise RuntimeError(f"could not ask {question}")
                yield question, os.waitstatus_to_exitcode(status) == _NO
        time.sleep(0.005)


def _forked(question: Question, is_so: Callable[[Question], bool]) -> int:
    if (pid := os.fork()) == 0:
        _answer(question, is_so)
    with suppress(OSError):  # it was quicker
        os.setpgid(pid, pid)
    return pid


def _answer(question: Question, is_so: Callable[[Question], bool]) -> NoReturn:
    """End this process by the answer, and all that it began with it."""
    status = _BROKEN
    try:
        os.setpgid(0, 0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (1, 2):
            os.dup2(nothing, number)
        status = _YES if is_so(question) else _NO
    finally:
        os._exit(status)
