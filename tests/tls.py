"""A server that speaks TLS, with certificates made for it."""

import contextlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from urllib.parse import quote

from tests.nodes import Node, directory, node
from tests.ports import free_port
from tests.programs import Unavailable
from tests.servers import DidNotStart

# What a Redis says that was built without TLS, and what a Valkey.
_WITHOUT = ("tls-port", "Failed finding TLS support")


@dataclass(frozen=True, slots=True)
class Secured:
    """A server that speaks TLS alone, for the name localhost, with a certificate of an authority of its own."""

    url: str
    authority: str
    """The file with the authority's certificate."""
    port: int


@contextlib.contextmanager
def tls(binary: str) -> Iterator[Secured]:
    """A server with TLS; Unavailable where it was built without."""
    with directory() as folder, ExitStack() as stack:
        port, files = free_port(), _certified(folder)
        stack.enter_context(_node(binary, "--tls-port", str(port), *files, "--tls-auth-clients", "no"))
        url = f"rediss://localhost:{port}/0?ssl_ca_certs={quote(folder + '/ca.pem')}"
        yield Secured(url, f"{folder}/ca.pem", port)


def _certified(folder: str) -> list[str]:
    """Write certificates into the folder; the options of a server that has them."""
    try:
        import trustme
    except ImportError as error:
        raise Unavailable(f"no certificates: {error}") from error
    authority = trustme.CA()
    authority.cert_pem.write_to_path(f"{folder}/ca.pem")
    ours = authority.issue_cert("localhost")
    ours.private_key_pem.write_to_path(f"{folder}/key.pem")
    ours.cert_chain_pems[0].write_to_path(f"{folder}/cert.pem")
    files = {"cert": "cert.pem", "key": "key.pem", "ca-cert": "ca.pem"}
    return [word for name, file in files.items() for word in (f"--tls-{name}-file", f"{folder}/{file}")]


@contextlib.contextmanager
def _node(binary: str, *options: str) -> Iterator[Node]:
    with ExitStack() as stack:
        try:
            one = stack.enter_context(node(binary, *options))
        except DidNotStart as error:
            if not any(word in str(error) for word in _WITHOUT):
                raise
            raise Unavailable(f"no TLS: install a Redis that was built with it: {error}") from error
        yield one
