"""A key whose slot is moving: the old node replies ASK, and the new one serves a command that follows ASKING.

Both have to be sent on the same connection. redis-py's client for tasks sends them on two if it has an even number of
connections, and stops after a while. Nothing was carried out by then.
"""

from collections.abc import Sequence
from typing import Any

from redis.exceptions import AskError, ClusterError, NoScriptError

from batchlimit.stores.client.scripts import digest, script


async def follow(client: Any, name: str, bucket: str, arguments: Sequence[str | bytes]) -> Any:
    """Run a script at the node that the old node names, or at the old node if it still has the key."""
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
        node._free.append(connection)  # release() is missing in redis-py 5.2


async def _say(connection: Any, *command: str | bytes) -> Any:
    await connection.connect()
    await connection.send_command("ASKING")
    await connection.read_response()
    await connection.send_command(*command)
    return await connection.read_response()
