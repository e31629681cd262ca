"""Whether a port that does not answer speaks TLS where the URL does not, or the other way round."""

import socket
import ssl
from urllib.parse import urlsplit

_PATIENCE = 2.0
"""Seconds for each of the two attempts."""


def mistaken(address: str) -> str:
    """Return the remedy if the URL is mistaken about TLS, by its first server; "" if that is not the reason."""
    url = urlsplit(address.partition(",")[0])
    if url.hostname is None or url.port is None:
        return ""
    if url.scheme.startswith("rediss"):
        return (
            "the port speaks no TLS: use redis in place of rediss, or the TLS port"
            if _is_plain(url.hostname, url.port)
            else ""
        )
    return "the port speaks TLS: use rediss in place of redis" if _is_encrypted(url.hostname, url.port) else ""


def _is_plain(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), _PATIENCE) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(1) in (b"+", b"-")
    except OSError:
        return False


def _is_encrypted(host: str, port: int) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is told to it
    try:
        with socket.create_connection((host, port), _PATIENCE) as connection, context.wrap_socket(connection):
            return True
    except OSError:
        return False
