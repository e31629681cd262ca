"""A real HTTP server in a thread that answers what a test says, and notes what it was asked."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Said(NamedTuple):
    """What it answers; a body of parts is sent in chunks, its iterator may block, and None is a lost connection."""

    status: int = 200
    headers: dict[str, str] = {}  # noqa: RUF012  nobody changes it
    body: bytes | Iterable[bytes | None] = b"fine"


class Upstream:
    """`says` returns the next answer, and may block; `asked` are the requests that came: method and path."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.says: Callable[[], Said] = Said
        self.url = ""

    def answers(self, *said: Said) -> None:
        """Answer these, and then 200."""
        left = list(said)
        self.says = lambda: left.pop(0) if left else Said()


@contextlib.contextmanager
def upstream() -> Iterator[Upstream]:
    """Run one on a port of its own."""
    found = Upstream()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found.asked.append((self.command, self.path))
            self.rfile.read(int(self.headers.get("content-length") or 0))
            status, headers, body = found.says()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            whole = ("content-length", str(len(body))) if isinstance(body, bytes) else None
            self.send_header(*(whole or ("transfer-encoding", "chunked")))
            self.end_headers()
            with contextlib.suppress(OSError):  # its client has left
                if self.command == "HEAD":
                    pass
                elif isinstance(body, bytes):
                    self.wfile.write(body)
                else:
                    for each in itertools.chain(body, [b""]):
                        if each is None:
                            self.close_connection = True
                            break
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(each), each))

        do_POST = do_HEAD = do_GET  # noqa: N815  as its base class calls it

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
