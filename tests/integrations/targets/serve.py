"""Servers that have no command for the socket that they are given: SERVER FD [MOUNT]."""

import socket
import sys

from tests.integrations.targets import apps


def waitress(listener: socket.socket, mount: str) -> None:
    from waitress.server import create_server

    create_server(apps.wsgi, sockets=[listener], threads=4, url_prefix=mount).run()


def wsgiref(listener: socket.socket, _: str) -> None:
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

    class Given(WSGIServer):
        def server_bind(self) -> None:
            self.socket.close()
            self.socket = listener
            self.server_name, self.server_port = listener.getsockname()
            self.setup_environ()

    class Quiet(WSGIRequestHandler):
        def log_message(self, *told: object) -> None:
            pass

    make_server("", 0, apps.wsgi, server_class=Given, handler_class=Quiet).serve_forever()


def aiohttp(listener: socket.socket, _: str) -> None:
    from aiohttp import web

    web.run_app(apps.OWN["aiohttp"](), sock=listener, print=None)


if __name__ == "__main__":
    name, fd, *mount = sys.argv[1:]
    {"waitress": waitress, "wsgiref": wsgiref, "aiohttp": aiohttp}[name](socket.socket(fileno=int(fd)), "".join(mount))
