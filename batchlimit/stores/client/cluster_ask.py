"""A key of a slot that is just moving: its old node says ASK, and the new one serves who has said ASKING before.

On one connection, that is. redis-py's client for tasks says ASKING on one and sends the command on another, where it
has an even number of them, and gives up after a while. Nothing was carried out by then.
"""

from collections.abc import Sequence
from typing import Any

from redis.exceptions import AskError, ClusterError, NoScriptError

from batchlimit.stores.client.scripts import digest, script


async def follow(client: Any, name: str, bucket: str, arguments: Sequence[str | bytes]) -> Any:
    """Run a script where the key's old node says that the key is now; or there, if it has it after all."""
    try:
        return await client.get_node_from_key(bucket).execute_command("EVALSHA", digest(name), "1", bucket, *arguments)
    except AskError as asked:
        node = client.get_node(asked.host, asked.port)
        if node is None:
            raise ClusterError("TTL exhausted: a node of the cluster is new") from asked
        return await _ask(node, name, bucket, arguments)


async def _ask(node: Any, name: str, bucket: str, arguments: Sequence[str | bytes]) -> Any:
    connection = node.acquire_connection()
    try:
        try:
            return await _say(connection, "EVALSHA", digest(name), "1", bucket, *arguments)
        except NoScriptError:
            return await _say(connection, "EVAL", script(name), "1", bucket, *arguments)
    finally:
        node._free.append(connection)  # release() is younger than what we support


async def _say(connection: Any, *command: str | bytes) -> Any:
    await connection.connect()
    await connection.send_command("ASKING")
    await connection.read_response()
    await connection.send_command(*command)
    return await connection.read_response()
