"""google.rpc.RetryInfo, as clients of gRPC look for it: bytes of the trailing metadata `grpc-status-details-bin`.

It is three messages of protobuf, each in a field of the next: Duration, RetryInfo and Status. They are written by hand:
grpcio itself does without protobuf.
"""

import math

DETAILS = "grpc-status-details-bin"
_TYPE = b"type.googleapis.com/google.rpc.RetryInfo"
_LONGEST = 315_576_000_000.0
"""Seconds of a Duration, at most."""


def status_details(code: int, message: str, delay: float) -> bytes:
    """Return a google.rpc.Status that says when to come back.

    Args:
        code: the number of the status.
        message: its text.
        delay: seconds, finite.

    Returns:
        The message, serialized.
    """
    seconds = min(max(delay, 0.0), _LONGEST)
    whole = math.floor(seconds)
    duration = _number(1, whole) + _number(2, int((seconds - whole) * 1e9))
    any_of_it = _bytes(1, _TYPE) + _bytes(2, _bytes(1, duration))
    return _number(1, code) + _bytes(2, message.encode()) + _bytes(3, any_of_it)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
