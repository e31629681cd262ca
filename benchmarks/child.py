"""Servers of a benchmark in processes of their own."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection

Served = tuple[str, Connection]
"""The address of a server, and where to ask it what happened."""


@contextmanager
def served(run: Callable[..., None], *arguments: object) -> Iterator[Served]:
    """Start `run(*arguments, parent)`, which sends its address first."""
    with all_served(run, [arguments]) as (only,):
        yield only


@contextmanager
def all_served(run: Callable[..., None], each: Sequence[Sequence[object]]) -> Iterator[list[Served]]:
    """Start `run(*arguments, parent)` once for each arguments, all at the same time."""
    spawn = multiprocessing.get_context("spawn")
    pipes = [spawn.Pipe() for _ in each]
    processes = [
        spawn.Process(target=run, args=(*arguments, there), daemon=True)
        for arguments, (_, there) in zip(each, pipes, strict=True)
    ]
    for process in processes:
        process.start()
    try:
        yield [(here.recv(), here) for here, _ in pipes]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
