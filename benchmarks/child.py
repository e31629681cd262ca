"""A server of a benchmark in a process of its own."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection


@contextmanager
def served(run: Callable[..., None], *arguments: object) -> Iterator[tuple[str, Connection]]:
    """Start `run(*arguments, parent)`, which sends its address first; yield that, and where to ask it what happened."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=run, args=(*arguments, there), daemon=True)
    process.start()
    try:
        yield here.recv(), here
    finally:
        process.terminate()
        process.join()
