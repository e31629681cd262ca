"""Connections to Redis and Valkey, and the commands and replies on them.

What these connections do that redis-py with a socket timeout does not. Processor time is that of the client for one
take, by `benchmarks/transports.py` on a busy machine (Python 3.11, redis-py 8.1, 2 cores).

| part | what it does | redis-py | here |
|---|---|---|---|
| RespSocket | reads and writes without redis-py's layers, from a kept connection | 34 us | 29 us |
| RespSocket | one deadline for a whole exchange; redis-py has one for each read | no bound | `deadline` |
| DirectTransport | keeps idle connections in a list, instead of redis-py's pool | 63 us | 34 us (29 with RespSocket) |
| DirectTransport | asks for up to 32 keys in one round trip, and has an error for each | a pipeline | `take_many` |
| MultiplexedConnection | one connection for all tasks; 1 task | 142 us | 65 us |
| MultiplexedConnection | the same; 64 tasks | 99 us, 64 connections | 23 us, 1 connection |
| MultiplexedConnection | sends an ask in the same turn of the event loop, without a task | a task for each | `send` |
| DeadlineConnection | never connects in a caller's thread: to resolve a name has no timeout | may hang | no wait |
| PausingConnection | with health checks, connecting does not use up the deadline of a task | it does | it does not |
| AsyncClusterTransport | reads the slots in the background after a failure | closes all connections | keeps them |
| AsyncClusterTransport | sends ASKING and the command on one connection | on two | on one |
| SentinelTransport | leaves the old primary after a planned failover | after about 11 s | within 0.25 s |

A cluster, sentinels and clients that the caller made use redis-py's connections. TLS and health checks use redis-py's
reads and writes, because a TLS socket may hold data that `poll` does not see.
"""
