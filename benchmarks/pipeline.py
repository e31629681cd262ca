"""Many commands at once: the server works through them without waiting for us."""

from collections.abc import Sequence
from typing import Any


def pipelined(client: Any, commands: Sequence[tuple[str | bytes, ...]]) -> list[Any]:
    """Return the replies, in their order; whatever is an error is raised, and leaves the client unusable."""
    connection = client.connection_pool.get_connection()
    connection.send_packed_command(connection.pack_commands(commands))
    replies = [connection.read_response() for _ in commands]
    client.connection_pool.release(connection)
    return replies
