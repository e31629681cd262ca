"""A client of HTTP over sockets."""

import http.client
import socket
from concurrent.futures import ThreadPoolExecutor

from tests.integrations.websocket import echoed, shake

DEADLINE = 100.0


class Client:
    """Asks a server as several users, one a case."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, user: str, path: str, method: str = "GET", *, follows: bool = False, **fields: str) -> int:
        """Ask, read the response to its end, and return its status; `follows`: of the last of the redirects."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            connection.request(method, path, headers={"x-user": user, **fields})
            reply = connection.getresponse()
            reply.read()
        except (http.client.HTTPException, ConnectionError):  # how a server ends a stream that has failed
            return 0
        finally:
            connection.close()
        if follows and (to := reply.getheader("location")) is not None:
            return self.ask(user, "/" + to.removeprefix("http://").partition("/")[2], follows=True)
        return reply.status

    def at_once(self, user: str, path: str, times: int) -> list[int]:
        """Ask several times at once."""
        with ThreadPoolExecutor(times) as pool:
            return sorted(pool.map(lambda _: self.ask(user, path), range(times)))

    def leave(self, user: str, path: str) -> None:
        """Close the connection when the body has begun."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: h\r\nX-User: {user}\r\n\r\n".encode())
            told = b""
            while b"xxx" not in told:
                told += connection.recv(4096)

    def talk(self, user: str, path: str, messages: int) -> None:
        """Shake hands, send messages, hear each of them again, and close."""
        with shake(self.port, path, user) as websocket:
            for number in range(messages):
                assert echoed(websocket, str(number)) == str(number)
