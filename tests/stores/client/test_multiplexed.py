"""One connection for many tasks: who asks in the same turn travels together, and each gets its own answer."""

import asyncio
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from batchlimit import AsyncRateLimiter, StoreUnavailable
from batchlimit.aio.guarded_store import GuardedStore
from batchlimit.bucket.messages import Ask, Grant, Level
from batchlimit.errors import BucketUnavailable
from batchlimit.quota.quota import Quota
from batchlimit.stores import AsyncRedisStore
from batchlimit.stores.client.async_direct import MultiplexedConnection, Reply
from batchlimit.stores.client.scripts import bucket_name, command
from tests.nodes import Node, await_fact, node
from tests.servers import Server, valkey_binary
from tests.stores.opened import opened_for_tasks

HUNDRED = Quota(0.001, 100)
LONG = 30.0
MANY = 50


def ask(need: int, seq: int = 1) -> Ask:
    return Ask("a", seq, need=need, queued=need, want=need, round_trip=2.0)


async def crowd(store: AsyncRedisStore, seq: int = 1) -> list[Grant | BaseException]:
    """Ask for another number of tokens at each key; a call that got another's reply would have another number."""
    calls = (store.take(f"k{i}", HUNDRED, ask(i + 1, seq)) for i in range(MANY))
    return await asyncio.gather(*calls, return_exceptions=True)


def granted(answers: list[Grant | BaseException]) -> list[object]:
    return [each.granted if isinstance(each, Grant) else type(each) for each in answers]


async def test_all_tasks_share_one_connection_and_each_has_its_own_answer(valkey: Server, prefix: str) -> None:
    async with opened_for_tasks(f"{valkey.url}?client_name={prefix}", prefix) as store:
        assert granted(await crowd(store)) == [i + 1 for i in range(MANY)]
        with valkey.client(decode_responses=True) as client:
            assert sum(each["name"] == prefix for each in client.client_list()) == 1


async def test_a_connection_that_ended_before_its_first_use_fails_at_once(valkey: Server, prefix: str) -> None:
    """Nobody would settle what is asked of it: the call would last as long as it may."""
    async with opened_for_tasks(valkey.url, prefix) as store:
        await store.take("k", HUNDRED, ask(1))
        line: Any = store._transport
        pipe: MultiplexedConnection = line._multiplexed
        pipe._transport.abort()
        await pipe._lost
        with pytest.raises(redis.ConnectionError, match="closed"):
            await asyncio.wait_for(pipe.send(b""), LONG)


async def test_a_command_is_sent_at_once_if_no_reply_is_awaited_and_the_others_of_its_turn_in_one_write(
    valkey: Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    flush = MultiplexedConnection._flush

    def write(pipe: MultiplexedConnection) -> None:
        written.append(len(pipe._outbox))
        flush(pipe)

    async with opened_for_tasks(valkey.url, prefix) as store:
        await store.peek("k", HUNDRED)
        await asyncio.sleep(0)
        monkeypatch.setattr(MultiplexedConnection, "_flush", write)
        for _ in range(2):
            written.clear()
            await asyncio.gather(*(store.peek(f"k{i}", HUNDRED) for i in range(MANY)))
            assert written == [1, MANY - 1]


async def test_a_command_that_is_sent_alone_leaves_the_loop_nothing_to_do(valkey: Server, prefix: str) -> None:
    async with opened_for_tasks(valkey.url, prefix) as store:
        await store.peek("k", HUNDRED)
        pipe: Any = store._transport._multiplexed  # type: ignore[union-attr]
        loop: Any = asyncio.get_running_loop()
        before = list(loop._ready)
        answer = pipe.send(command(("PING",)))
        assert list(loop._ready) == before
        assert await answer == b"PONG"


async def test_one_that_finds_no_reply_awaited_takes_those_along_that_wait_for_the_end_of_the_turn(
    valkey: Server, prefix: str
) -> None:
    async with opened_for_tasks(valkey.url, prefix) as store:
        await store.peek("k", HUNDRED)
        pipe: Any = store._transport._multiplexed  # type: ignore[union-attr]
        written, transport = list[bytes](), pipe._transport
        pipe._transport = SimpleNamespace(write=written.append, abort=transport.abort)
        answers = [pipe.send(each) for each in (b"A", b"B")]
        pipe.data_received(b"+a\r\n")
        answers.append(pipe.send(b"C"))
        assert written == [b"A", b"BC"]
        await asyncio.sleep(0)
        pipe.data_received(b"+b\r\n+c\r\n")
        assert [await each for each in answers] == [b"a", b"b", b"c"]
        assert (pipe.is_open, len(written)) == (True, 2)
        pipe._transport = transport


async def test_who_hears_of_a_reply_does_so_as_soon_as_it_is_there(valkey: Server, prefix: str) -> None:
    async with opened_for_tasks(valkey.url, prefix) as store:
        await store.peek("k", HUNDRED)
        pipe: Any = store._transport._multiplexed  # type: ignore[union-attr]
        heard = list[Any]()
        answers = [pipe.send(command(("PING",))) for _ in range(5)]
        for each in answers:
            each.hear = heard.append
        await asyncio.sleep(0)  # all of them are sent by the end of a turn
        pipe.data_received(b"+a\r\n-ERR b\r\n")
        assert heard == answers[:2]
        assert (answers[0].result(), str(answers[1].exception())) == (b"a", "b")
        answers[2].cancel()
        assert (heard, pipe.is_open) == (answers[:3], False)
        await pipe.close()
        assert heard == answers
        assert all(isinstance(each.exception(), redis.ConnectionError) for each in answers[3:])


async def test_what_goes_wrong_for_one_who_hears_harms_no_other(valkey: Server, prefix: str) -> None:
    async with opened_for_tasks(valkey.url, prefix) as store:
        await store.take("k", HUNDRED, ask(1))  # the server has the script from then on
        guarded, wrong = GuardedStore(store, LONG), list[Exception]()
        heard: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().set_exception_handler(lambda _, told: wrong.append(told["exception"]))
        assert guarded.send("a", HUNDRED, ask(1), lambda _: wrong.clear(0))  # type: ignore[call-arg]
        assert guarded.send("b", HUNDRED, ask(2), heard.set_result)
        assert granted([await asyncio.wait_for(heard, LONG)]) == [2]
        assert [type(each) for each in wrong] == [TypeError]


@pytest.mark.real_time
async def test_a_caller_gets_its_answer_though_a_signal_handler_raised_before_it_was_heard(
    valkey: Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncRateLimiter.from_url(valkey.url, HUNDRED, prefix=prefix, deadline=0.5) as limiter:
        assert await limiter.try_acquire("before")

        def interrupted(reply: Reply, told: object) -> None:
            monkeypatch.undo()
            reply.set_result(told)
            raise asyncio.CancelledError  # a BaseException that a loop survives

        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        monkeypatch.setattr(Reply, "set_result", interrupted)
        assert await asyncio.wait_for(limiter.try_acquire("k"), LONG)
        assert (await limiter.peek("k")).remaining == 99


async def test_commands_of_one_turn_arrive_together(prefix: str) -> None:
    heard: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while said := await reader.read(1 << 20):
            asked = said.count(b"EVALSHA")
            heard.append(asked)
            writer.write(b"+OK\r\n" * said.count(b"SETINFO") + b"*3\r\n:1\r\n:0\r\n:0\r\n" * asked)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, opened_for_tasks(f"redis://127.0.0.1:{port}?protocol=2", prefix) as store:
        await store.peek("k", HUNDRED)
        heard.clear()
        await asyncio.gather(*(store.peek(f"k{i}", HUNDRED) for i in range(MANY)))
        assert heard == [MANY]


async def test_lost_scripts_do_not_show(prefix: str) -> None:
    with node(valkey_binary()) as one:
        async with opened_for_tasks(one.url, prefix) as store:
            for seq in range(1, 4):
                one.ask("SCRIPT", "FLUSH")
                one.ask("FLUSHALL")
                assert granted(await crowd(store, seq)) == [i + 1 for i in range(MANY)]


async def test_an_error_of_one_key_reaches_its_caller_alone(valkey: Server, prefix: str) -> None:
    async with opened_for_tasks(valkey.url, prefix) as store:
        with valkey.client() as client:
            client.set(bucket_name(prefix, "k7"), "theirs")
        answers = granted(await crowd(store))
        assert answers.pop(7) is BucketUnavailable
        assert answers == [i + 1 for i in range(MANY) if i != 7]


async def test_a_cancelled_call_leaves_others_their_replies_and_the_next_call_reconnects(prefix: str) -> None:
    """Nobody knows whether a connection on which one waited in vain is good for anything."""
    with node(valkey_binary()) as one:
        async with opened_for_tasks(f"{one.url}?client_name={prefix}", prefix) as store:
            await store.peek("k", HUNDRED)
            pipe = store._transport._multiplexed  # type: ignore[union-attr]
            one.stop()
            hasty, patient = (asyncio.create_task(store.take(key, HUNDRED, ask(7))) for key in ("hasty", "patient"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            hasty.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hasty
            later = asyncio.create_task(store.peek("never", HUNDRED))
            await asyncio.sleep(0)
            one.go_on()
            assert (await patient).granted == 7
            assert await later == Level(100, 0, 0, (100.0,))
            assert store._transport._multiplexed is not pipe  # type: ignore[union-attr]
            await_fact(lambda: _names(one).count(prefix) == 1, "the end of the connection that nobody waits for")


async def test_calls_that_are_given_up_together_are_looked_at_a_few_times_each(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a server stands still: each one looked at all others, and 5,000 stopped the loop for a second."""
    looks = 0

    def counted(answer: Reply) -> bool:
        nonlocal looks
        looks += 1
        return asyncio.Future.done(answer)

    with node(valkey_binary()) as one:
        async with opened_for_tasks(one.url, prefix) as store:
            await store.peek("k", HUNDRED)
            pipe: MultiplexedConnection = store._transport._multiplexed  # type: ignore[union-attr]
            one.stop()
            answers = [pipe.send(command(("PING",))) for _ in range(MANY)]
            monkeypatch.setattr(Reply, "done", counted, raising=False)
            for each in answers:
                assert not pipe._transport.is_closing()
                each.cancel()
            assert pipe._transport.is_closing()
            assert looks <= 3 * MANY
            one.go_on()


async def test_a_call_cancelled_as_its_reply_arrives_leaves_the_connection_to_others(
    valkey: Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reply came, so the next one is that to the next command."""
    async with opened_for_tasks(f"{valkey.url}?client_name={prefix}", prefix) as store:
        for _ in range(3):
            await store.peek("k", HUNDRED)
            pipe: MultiplexedConnection = store._transport._multiplexed  # type: ignore[union-attr]
            call = asyncio.create_task(store.peek("k", HUNDRED))
            with monkeypatch.context() as patch:
                patch.setattr(pipe, "data_received", partial(_receive_and_cancel, pipe.data_received, call))
                with pytest.raises(asyncio.CancelledError):
                    await call
            assert (await store.take("k", HUNDRED, ask(1))).granted == 1
            assert store._transport._multiplexed is pipe  # type: ignore[union-attr]


def _receive_and_cancel(receive: Callable[[bytes], None], call: "asyncio.Task[Level]", data: bytes) -> None:
    receive(data)
    call.cancel()


async def asked_thrice(store: Any) -> tuple[Any, list[Any]]:
    """Return a connection that the tests alone feed, and three answers; a signal comes while it takes the first."""

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    await store.peek("k", HUNDRED)
    line = store._transport
    pipe, line._multiplexed = line._multiplexed, None
    pipe._transport.set_protocol(asyncio.Protocol())
    answers = [pipe.send(command(("PING",))) for _ in range(3)]
    answers[0].hear = interrupted
    return pipe, answers


async def test_a_signal_amid_the_news_that_a_connection_ended_keeps_it_from_no_other_caller(
    valkey: Server, prefix: str
) -> None:
    """The others never heard of it, and closing the store waited for ever."""

    async with opened_for_tasks(valkey.url, prefix) as store:
        pipe, answers = await asked_thrice(store)
        with pytest.raises(KeyboardInterrupt):
            pipe.connection_lost(None)
        pipe._transport.abort()
        assert [type(each.exception()) for each in answers if each.done()] == [redis.ConnectionError] * 3
        assert pipe._lost.done()


async def test_a_signal_amid_the_hearing_of_a_reply_ends_the_connection_of_no_other_caller(
    valkey: Server, prefix: str
) -> None:
    async with opened_for_tasks(valkey.url, prefix) as store:
        pipe, answers = await asked_thrice(store)
        with pytest.raises(KeyboardInterrupt):
            pipe.data_received(b"+one\r\n+two\r\n+three\r\n")
        assert pipe.is_open
        assert await asyncio.gather(*answers) == [b"one", b"two", b"three"]
        pipe._transport.abort()


async def test_a_connection_that_ends_fails_all_waiting_calls_and_is_replaced(prefix: str) -> None:
    with node(valkey_binary()) as one:
        async with opened_for_tasks(f"{one.url}?client_name={prefix}", prefix) as store:
            await store.peek("k", HUNDRED)
            one.stop()
            calls = asyncio.create_task(crowd(store))
            await asyncio.sleep(0)
            one.kill()
            assert set(granted(answers := await calls)) == {StoreUnavailable}
            assert len({id(each.__cause__) for each in answers if isinstance(each, StoreUnavailable)}) == 1
            one.start()
            assert granted(await crowd(store)) == [i + 1 for i in range(MANY)]


async def test_an_idle_connection_that_ends_is_replaced(prefix: str) -> None:
    with node(valkey_binary()) as one:
        async with opened_for_tasks(one.url, prefix) as store:
            await store.peek("k", HUNDRED)
            pipe = store._transport._multiplexed  # type: ignore[union-attr]
            one.kill()
            one.start()
            await pipe._lost
            assert (await store.peek("k", HUNDRED)).level == 100


async def test_a_reply_without_a_command_ends_the_connection(prefix: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while said := await reader.read(1 << 20):
            asked = said.count(b"EVALSHA")
            writer.write(b"+OK\r\n" * said.count(b"SETINFO") + b"*3\r\n:1\r\n:0\r\n:0\r\n" * 2 * asked)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, opened_for_tasks(f"redis://127.0.0.1:{port}?protocol=2", prefix) as store:
        pipes = set()
        for _ in range(3):
            await store.peek("k", HUNDRED)
            pipes.add(store._transport._multiplexed)  # type: ignore[union-attr]
            await store._transport._multiplexed._lost  # type: ignore[union-attr]
        assert [type(each._error) for each in pipes] == [redis.InvalidResponse] * 3


@pytest.mark.parametrize("where", ["write", "settle"])
def test_the_reply_to_an_interrupted_call_reaches_no_other_call(valkey: Server, prefix: str, where: str) -> None:
    """A signal handler raises within the event loop: the next call must not get another's reply."""
    with asyncio.Runner() as runner, pytest.MonkeyPatch.context() as patch:
        store = AsyncRedisStore.from_url(valkey.url, prefix=prefix, connect_timeout=LONG, deadline=LONG)
        for key in ("k", "rich"):
            assert runner.run(store.peek(key, HUNDRED)).level == 100

        def interrupt(*_: object) -> None:
            patch.undo()
            raise KeyboardInterrupt

        pipe = store._transport._multiplexed  # type: ignore[union-attr]
        if where == "write":
            patch.setattr(pipe, "_transport", SimpleNamespace(write=interrupt, abort=pipe._transport.abort))
        else:
            patch.setattr(pipe, "_asked", SimpleNamespace(extend=pipe._asked.extend, popleft=interrupt))
        with pytest.raises(KeyboardInterrupt):
            runner.run(store.take("rich", HUNDRED, ask(50)))
        assert runner.run(store.peek("k", HUNDRED)).level == 100
        assert runner.run(store.peek("rich", HUNDRED)).level in (50, 100), "it was carried out, or never arrived"
        runner.run(store.aclose())


async def test_connecting_is_cancelled_when_no_call_waits_for_it(prefix: str) -> None:
    with node(valkey_binary()) as one:
        async with opened_for_tasks(one.url, prefix) as store:
            one.stop()
            calls = [asyncio.create_task(store.peek(f"k{i}", HUNDRED)) for i in range(3)]
            await asyncio.sleep(0)
            connecting = store._transport._connecting  # type: ignore[union-attr]
            for call in calls:
                assert not connecting.done()
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
            with pytest.raises(asyncio.CancelledError):
                await connecting
            one.go_on()
            assert (await store.peek("k", HUNDRED)).level == 100


def _names(one: Node) -> list[str]:
    with one.client() as client:
        return [each["name"] for each in client.client_list()]
