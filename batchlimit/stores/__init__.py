"""Where buckets live. A store runs `take`, `give_back` and `peek` of a bucket, each as one atomic step.

A URL or a redis-py client is enough for a limiter. Use RedisStore to share one store between limiters, and MemoryStore
in tests. To keep buckets elsewhere, implement Store or AsyncStore; their messages are Ask, Grant, GiveBack and Level.

Promise. A store answers, or raises StoreUnavailable; BucketUnavailable if it cannot serve this one key. It never sends
a command again that may have run. It never asks a replica, and never shows a password.

One call, from the caller to the socket (threads; for tasks the classes begin with Async):

1. GuardedStore (`sync/`, `aio/`) looks at the circuit breaker. While it is open, the call fails at once.
2. RedisStore (`redis.py`) makes the bucket's name and the arguments: `client/scripts.py`.
3. A Transport (`client/`) sends EVALSHA once. After NOSCRIPT it loads the script and sends the command again.
4. RedisStore reads the reply into a Grant. `client/diagnosis.py` turns an error into StoreUnavailable with a hint.

Retries:

| what happened | who acts |
|---|---|
| NOSCRIPT: the script did not run | the transport loads it and sends the command again |
| MOVED, ASK: the script did not run | redis-py follows; where its client for tasks cannot, `client/cluster.py` |
| the answer is lost | the reservoir repeats the ask later with the same number; the script then repeats its answer |
| three consecutive failures | the breaker opens; a background thread or task probes until the store answers |

Which transport is used:

| store | threads | tasks |
|---|---|---|
| one server, TCP or unix socket | DirectTransport with RespSocket | AsyncDirectTransport: one connection |
| one server, TLS | DirectTransport; redis-py reads and writes (*) | as above |
| one server, `health_check_interval` | as with TLS (*) | AsyncServerTransport (**) |
| sentinels | SentinelTransport (*) | AsyncSentinelTransport (**) |
| a cluster | ClusterTransport (*) | AsyncClusterTransport (**) |
| a client that the caller made | ServerTransport or ClusterTransport (*) | their Async forms |
| `memory://` | none: the bucket is a Python object | none |

(*) in a thread of the limiter, 16 at most; all others in the caller's thread. (**) 64 calls at once, at most.

Deadline. `deadline` (seconds, default 0.05) bounds the time that a caller waits for an answer on a connection that is
there. In the caller's thread each read and write gets what is left of it. A thread of the limiter that is still waiting
is left behind. Connecting has a timeout of its own, `connect_timeout` (seconds, default 1.0). A caller's thread never
connects, because resolving a name has no timeout: NeedsConnection sends the call to a thread of the limiter.

Dead connections. An idle connection is checked before use, without a round trip; a dead one is replaced before anything
is sent. A connection that fails during a call costs that call: it raises, and the connection is closed. So is one whose
answer was not read, after a timeout, a cancellation or a signal: its next answer belongs to nobody.
"""

from typing import TYPE_CHECKING

from batchlimit.base.lazy import names

if TYPE_CHECKING:
    from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level, Spend, SpendReply, Spent
    from batchlimit.stores.async_redis import AsyncRedisStore
    from batchlimit.stores.memory import MemoryStore
    from batchlimit.stores.optional import AsyncPausable, AsyncSpender, Pausable, Spender
    from batchlimit.stores.protocols import AsyncRemote, AsyncStore, Remote, Store
    from batchlimit.stores.redis import RedisStore
else:  # where __getattr__ would hide a name that there is not
    __getattr__, __dir__ = names(
        __name__,
        {
            "batchlimit.bucket.messages": "Ask GiveBack Grant Level Spend SpendReply Spent",
            "batchlimit.stores.async_redis": "AsyncRedisStore",
            "batchlimit.stores.memory": "MemoryStore",
            "batchlimit.stores.optional": "AsyncPausable AsyncSpender Pausable Spender",
            "batchlimit.stores.protocols": "AsyncRemote AsyncStore Remote Store",
            "batchlimit.stores.redis": "RedisStore",
        },
    )

__all__ = [
    "Ask",
    "AsyncPausable",
    "AsyncRedisStore",
    "AsyncRemote",
    "AsyncSpender",
    "AsyncStore",
    "GiveBack",
    "Grant",
    "Level",
    "MemoryStore",
    "Pausable",
    "RedisStore",
    "Remote",
    "Spend",
    "SpendReply",
    "Spender",
    "Spent",
    "Store",
]
