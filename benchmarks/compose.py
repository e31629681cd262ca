"""The Redis of docker-compose.yml, for as long as something is measured."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from tenacity import Retrying, stop_after_delay, wait_fixed

_ROOT = Path(__file__).resolve().parents[1]
_PROJECT = f"batchlimit-bench-{os.getpid()}"
"""A name of its own: a Redis that somebody started for something else, or another run, is neither used nor stopped."""
_PATIENCE = 30.0
"""Seconds until a server that was started should answer."""


class NoDocker(Exception):
    """There is no Docker here, or it does not do what it is asked to; the message is one line."""


@contextmanager
def composed() -> Iterator[str]:
    """Start it on a free port of this machine; its URL. It is stopped and removed at the end."""
    command, environment = _command(), os.environ | {"REDIS_PORT": str(port := _free_port())}
    try:
        _run([*command, "up", "--detach"], environment)  # Compose of old knows no --wait
        url = f"redis://127.0.0.1:{port}/0"
        _await(url)
        yield url
    finally:
        _run([*command, "down", "--volumes"], environment)


def _command() -> list[str]:
    """How Compose is called here: a part of Docker, or the program of old."""
    for compose in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(compose[0]) and _answers([*compose, "version"]):
            _run(["docker", "info"], dict(os.environ))
            return [*compose, "--project-name", _PROJECT, "--file", str(_ROOT / "docker-compose.yml")]
    raise NoDocker("no Docker with Compose on this machine")


def _answers(command: list[str]) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _run(command: list[str], environment: dict[str, str]) -> None:
    try:
        ran = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    except OSError as error:
        raise NoDocker(f"{command[0]}: {error}") from error
    if ran.returncode:
        lines = ran.stderr.strip().splitlines() or ["no reason given"]
        raise NoDocker(f"{' '.join(command[:2])} failed: {lines[-1]}")


def _await(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        try:
            Retrying(stop=stop_after_delay(_PATIENCE), wait=wait_fixed(0.1), reraise=True)(client.ping)
        except redis.RedisError as error:
            raise NoDocker(f"the Redis of docker-compose.yml does not answer: {error}") from error


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
