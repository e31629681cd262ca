"""What the pages of docs/how-to show of curl is what an example answers, whose server and requests are started here."""

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integrations.worker_commands import working
from tests.ports import free_port
from tests.servers import redis_server, valkey_binary
from tests.sync.stage import until

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "how-to"
DEADLINE = 100.0
Asked = tuple[str, dict[str, str]]
REPORT: Asked = ("/api/report", {"X-API-Key": "secret-of-ann"})
SEARCH: Asked = ("/search", {"X-User": "ann"})
V1: Asked = ("/v1/search", {})


class Shown(NamedTuple):
    """A page: how it serves its application, and what is asked before each request that it shows."""

    page: str
    command: str
    before: tuple[list[Asked], ...]


SHOWN = [
    Shown("fastapi", "uvicorn examples.fastapi_app:app --port {port}", ([REPORT] * 2,)),
    Shown("litestar", "uvicorn examples.litestar_app:app --port {port}", ([REPORT], [])),
    Shown("starlette", "uvicorn examples.starlette_app:app --port {port}", ([], [V1] * 9)),
    Shown("flask", "gunicorn examples.flask_app:app --no-control-socket -b 127.0.0.1:{port}", ([SEARCH] * 2,)),
    Shown("django", "gunicorn examples.django_site:wsgi --no-control-socket -b 127.0.0.1:{port}", ([SEARCH] * 2,)),
    Shown("quart", "hypercorn examples.quart_app:app -b 127.0.0.1:{port}", ([SEARCH] * 2,)),
    Shown("aiohttp", "aiohttp.web -H 127.0.0.1 -P {port} examples.aiohttp_app:make_app", ([], [SEARCH])),
]


class Reply(NamedTuple):
    """A response: its status line, its header fields and its body, whose lines a page may break."""

    status: str
    fields: dict[str, str]
    body: str


def told(lines: list[str]) -> Reply:
    """Read a response from a page; hashes and spread times are told as such."""
    end = lines.index("")
    fields = dict(line.split(": ", 1) for line in lines[1:end])
    return Reply(lines[0], {name.lower(): masked(name, value) for name, value in fields.items()}, body(lines[end:]))


def masked(name: str, value: str) -> str:
    if name.lower() == "retry-after":
        return "at least 1" if int(value) >= 1 else value
    # The rule for all is asked by whatever looks whether the server is there; what remains of it may be leased.
    value = re.sub(r'"(all|address)";r=\d+;t=\d+', r'"\1";r;t', value)
    return re.sub(r"pk=:[^:]+:", "pk", value)


def body(lines: list[str]) -> str:
    return "".join(" ".join(lines).split())


def shown(page: str) -> Iterator[tuple[Asked, Reply]]:
    """Yield each request of curl that a page shows, and its response."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    blocks = [each.removeprefix("\n") for each in re.findall(r"```(\n\$ curl.*?)```", text, re.DOTALL)]
    for part in "".join(blocks).split("$ curl -i ")[1:]:
        command, *lines = part.splitlines()
        words = shlex.split(command, comments=True)
        headers = dict(words[at + 1].split(": ", 1) for at, word in enumerate(words) if word == "-H")
        yield ("/" + words[-1].removeprefix("http://").partition("/")[2], headers), told(lines)


def asked(port: int, request: Asked) -> Reply:
    connection = HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    try:
        connection.request("GET", request[0], headers=request[1])
        reply = connection.getresponse()
        fields = {name.lower(): masked(name, value) for name, value in reply.getheaders()}
        return Reply(_status_line(reply), fields, body([reply.read().decode()]))
    finally:
        connection.close()


def _status_line(reply: HTTPResponse) -> str:
    return f"HTTP/1.1 {reply.status} {reply.reason}".rstrip()


_PATIENT = """
from batchlimit import AsyncRateLimiter, RateLimiter
from batchlimit.integrations import source

source.DEADLINE = 30.0
for limiter in (AsyncRateLimiter, RateLimiter):
    limiter.from_url.__func__.__kwdefaults__.update(deadline=30.0, connect_timeout=30.0)
"""
"""Run before the application: its store has a minute to answer, for a slow machine is not away."""


@contextmanager
def serving(command: str, folder: Path, url: str) -> Iterator[int]:
    (folder / "sitecustomize.py").write_text(_PATIENT, encoding="utf-8")
    port = free_port()
    with working(command.format(port=port).split(), folder, STORE=url, REDIS_URL=url) as crew:
        crew.port = port  # it takes no socket, and listens late
        until(crew.listens)
        yield port


@pytest.mark.parametrize("told_by", SHOWN, ids=lambda each: each.page)
def test_the_output_of_curl_on_a_page_is_what_its_application_answers(told_by: Shown, tmp_path: Path) -> None:
    text = (PAGES / f"{told_by.page}.md").read_text(encoding="utf-8")
    server, application = told_by.command.split()[0], re.findall(r"[\w.]+:[a-z]\w*", told_by.command)[0]
    assert re.search(f"`[^`]*{re.escape(server)}[^`]* {application}`", text), "the page says how to serve it, as here"
    if server in ("uvicorn", "gunicorn"):  # which no extra brings
        assert f"pip install 'batchlimit[{told_by.page}]' {server} " in text
    assert "# and a Redis at localhost:6379" in text
    with redis_server(valkey_binary()) as url, serving(told_by.command, tmp_path, url) as port:
        requests = list(shown(told_by.page))
        assert len(requests) == len(told_by.before)
        for before, (request, expected) in zip(told_by.before, requests, strict=True):
            for each in before:
                asked(port, each)
            reply = asked(port, request)
            assert (reply.status, reply.body) == (expected.status, expected.body)
            assert {name: reply.fields.get(name) for name in expected.fields} == expected.fields


@pytest.mark.parametrize("page", ["fastapi", "litestar"])
def test_the_code_of_a_page_with_an_application_of_its_own_refuses_as_the_page_shows(page: str, tmp_path: Path) -> None:
    code = (PAGES / f"{page}.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    *_, (request, expected) = shown(page)
    with redis_server(valkey_binary()) as url:
        (tmp_path / "main.py").write_text(code.replace("redis://localhost:6379/0", url), encoding="utf-8")
        with serving("uvicorn main:app --port {port}", tmp_path, url) as port:
            replies = [asked(port, request) for _ in range(3)]
    assert [reply.status for reply in replies] == ["HTTP/1.1 200 OK"] * 2 + [expected.status]
    assert replies[-1].body == expected.body
    assert {name: replies[-1].fields.get(name) for name in expected.fields} == expected.fields


def test_every_page_of_a_web_framework_is_run() -> None:
    pages = {path.stem for path in PAGES.glob("*.md") if "$ curl" in path.read_text(encoding="utf-8")}
    assert pages == {each.page for each in SHOWN}
