"""Servers that fork their workers: what was made before goes on on both sides, whatever was under way just then."""

import pytest

from batchlimit import Quota, RateLimiter
from batchlimit.stores import RedisStore
from tests.servers import Server
from tests.sync.stage import process, said, spend

THOUSAND = Quota(0.001, 1000)

pytestmark = pytest.mark.usefixtures("far_away")


def rest(store: RedisStore) -> int:
    """What is left in the bucket, spent to the last token."""
    with RateLimiter(store, THOUSAND) as last:
        return spend(last)


def test_workers_that_are_forked_from_a_used_limiter_share_the_burst_with_it(
    valkey: Server, valkey_store: RedisStore, prefix: str
) -> None:
    """As gunicorn does with --preload: the master goes on, the workers have threads, and end by themselves."""
    program = """
    limiter = limiter_of("0.001/s burst 1000", sizer=FixedBatch(100))
    bucket = limiter.bucket(KEY)
    admitted = bucket.try_acquire() + bucket.try_acquire()  # it knows of the master's key entry, and its leased tokens
    reader, writer = os.pipe()

    def work():
        spent = [0] * 4

        def serve(i):
            spent[i] = int(bucket.try_acquire()) + spend(limiter)

        threads = [threading.Thread(target=serve, args=[i]) for i in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        os.write(writer, f"{sum(spent)}\\n".encode())

    children = []
    for _ in range(3):
        if (child := os.fork()) == 0:
            signal.alarm(100)
            work()
            sys.exit()  # with all that is done at exit
        children.append(child)
    work()
    codes = [os.waitpid(child, 0)[1] for child in children]
    limiter.close()
    os.close(writer)
    say(admitted + sum(int(each) for each in os.fdopen(reader)), codes)
    """
    spent, _, codes = said(program, valkey.url, prefix)[0].partition(" ")
    assert codes == "[0, 0, 0]"
    assert int(spent) + rest(valkey_store) == 1000


def test_workers_on_event_loops_share_the_burst(valkey: Server, valkey_store: RedisStore, prefix: str) -> None:
    """The limiter was made and used before, on a loop of the master's that is over."""
    program = """
    import asyncio
    limiter = AsyncRateLimiter.from_url(URL, "0.001/s burst 1000", prefix=PREFIX, connect_timeout=30.0, deadline=30.0)

    async def work():
        spent = 0
        while await limiter.try_acquire(KEY):
            spent += 1
        return spent

    async def one():
        await limiter.acquire(KEY)

    asyncio.run(one())
    for _ in range(2):
        fork(lambda: asyncio.run(work()))
    say(1 + asyncio.run(work()))
    """
    spent = sum(map(int, said(program, valkey.url, prefix)))
    assert spent + rest(valkey_store) == 1000


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_processes_that_make_a_limiter_of_their_own_share_the_burst(
    valkey: Server, valkey_store: RedisStore, prefix: str, method: str
) -> None:
    program = f"""
    from tests.life.workers import spend_all as work
    if __name__ == "__main__":
        limiter = limiter_of("0.001/s burst 1000")
        limiter.acquire(KEY)
        context = multiprocessing.get_context("{method}")
        pipes = [context.Pipe(duplex=False) for _ in range(2)]
        processes = [context.Process(target=work, args=(URL, PREFIX, KEY, writer)) for _, writer in pipes]
        for each in processes:
            each.start()
        spent = 1 + spend(limiter)
        limiter.close()
        spent += sum(reader.recv() for reader, _ in pipes)
        for each in processes:
            each.join()
        say(spent, [each.exitcode for each in processes])
    """
    spent, _, codes = said(program, valkey.url, prefix)[0].partition(" ")
    assert codes == "[0, 0]"
    assert int(spent) + rest(valkey_store) == 1000


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_limiter_that_is_sent_to_another_process_says_what_to_do(valkey: Server, prefix: str, method: str) -> None:
    program = f"""
    limiter = limiter_of("0.001/s burst 1000")
    try:
        multiprocessing.get_context("{method}").Process(target=print, args=[limiter]).start()
    except TypeError as error:
        say(error)
    """
    with process(program, valkey.url, prefix) as other:
        assert "make one in each process, from the same URL" in other.hear()


def test_a_fork_while_an_ask_is_under_way_concerns_neither_side(
    private: Server, private_store: RedisStore, prefix: str
) -> None:
    """The answer is the parent's alone; the child asks for itself, and does not wait for what is not its own."""
    program = """
    import redis
    server = redis.Redis.from_url(URL)
    limiter = limiter_of("0.001/s burst 1000", sizer=FixedBatch(10))
    limiter.acquire("another")
    server.execute_command("CLIENT", "PAUSE", 600_000, "WRITE")
    threads = [threading.Thread(target=limiter.acquire, args=[KEY]) for _ in range(2)]
    for each in threads:
        each.start()
    while limiter._entries.get(KEY) is None or limiter._entries[KEY].reservoir.state.in_flight is None:
        pass
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        signal.alarm(100)
        assert limiter.statistics().waiting == 0
        asking = threading.Thread(target=limiter.acquire, args=[KEY])
        asking.start()
        while limiter._entries.get(KEY) is None or limiter._entries[KEY].reservoir.state.in_flight is None:
            pass
        os.write(writer, b"asks")
        asking.join()
        os.write(writer, b"done")
        limiter.acquire("another")
        spent = 1 + spend(limiter)
        limiter.close()
        say(spent)
        os._exit(0)
    os.read(reader, 4)
    server.execute_command("CLIENT", "UNPAUSE")
    for each in threads:
        each.join()
    os.read(reader, 4)  # else this may leave no token to the child, whose ask may not have been sent
    spent = 2 + spend(limiter)
    limiter.close()
    _, status = os.waitpid(child, 0)
    say(spent, limiter.statistics().admitted - spent, status)
    """
    with process(program, private.url, prefix) as other:
        numbers = sorted((other.hear().split() for _ in range(2)), key=len)
        assert other.end() == 0
    assert numbers[1][1:] == ["1", "0"]
    assert int(numbers[0][0]) + int(numbers[1][0]) + rest(private_store) == 1000


def test_a_fork_of_a_fork_leaves_the_first_ones_loop_alone(valkey: Server, prefix: str) -> None:
    """What a child must not touch, its own child must not either: their loops share one selector in the kernel."""
    program = """
    import asyncio

    async def main():
        limiter = AsyncRateLimiter.from_url(URL, "1000/s burst 100", prefix=PREFIX, connect_timeout=30.0, deadline=30.0)
        say(await asyncio.gather(*(limiter.try_acquire(f"{KEY} {i}") for i in range(4))))
        if (child := os.fork()) == 0:
            if (grandchild := os.fork()) != 0:
                os.waitpid(grandchild, 0)
            gc.collect()
            os._exit(0)
        os.waitpid(child, 0)
        say(await asyncio.gather(*(limiter.try_acquire(f"{KEY} {i} again") for i in range(4))))
        await limiter.close()

    asyncio.run(main())
    """
    assert said(program, valkey.url, prefix) == [str([True] * 4)] * 2


def admitted(valkey: Server, prefix: str, limiter: str, call: str, rounds: int) -> list[str]:
    """How often three children were admitted by turns that a fork has made of which Python is not told, as uWSGI's."""
    program = f"""
    import ctypes
    from batchlimit.shared import SharedConcurrencyLimiter

    def others_run():
        frames = sys._current_frames()
        del frames[threading.get_ident()]
        return [each for each in frames.values() if each.f_code.co_name not in ("_sleep", "wait")]

    # If a thread waits for the interpreter during the fork, the child has an interpreter that is never free.
    sys.setswitchinterval(60.0)  # who runs gives it up to wait only
    limiter = {limiter}
    children = []
    for _ in range(3):
        (turns, turn), (told, tell) = os.pipe(), os.pipe()
        while others_run():
            time.sleep(0.001)
        if ctypes.PyDLL(None).fork() == 0:
            signal.alarm(100)
            while os.read(turns, 1) == b"?":
                try:
                    os.write(tell, b"1" if {call} else b"0")
                except ConcurrencyLimited:
                    os.write(tell, b"0")
            os._exit(0)
        os.close(tell)  # a child that ends is seen
        children.append((turn, told))
    admitted = 0
    for turn, told in children * {rounds}:
        os.write(turn, b"?")
        admitted += int(os.read(told, 1))
    for turn, _ in children:
        os.write(turn, b".")
    say(admitted)
    """
    return said(program, valkey.url, prefix)


@pytest.mark.parametrize(
    ("call", "least"),
    [
        ("limiter.try_acquire(KEY)", 40),
        ("all(limiter.decide_all({KEY: 1, 'other': 1}).values())", 38),  # some may hold the last token of one key each
        ("[limiter.peek(KEY), limiter.try_acquire(KEY)][1]", 40),
        ("[limiter.pause('other', 1.0), limiter.try_acquire(KEY)][1]", 40),
    ],
)
def test_children_of_a_fork_of_which_python_is_not_told_are_instances_of_their_own(
    valkey: Server, prefix: str, call: str, least: int
) -> None:
    """They ask in turns: as one instance they would get the answers of each other's calls."""
    begun = "limiter_of('40/hour'); limiter.peek(KEY)  # it has a thread, which is the parent's alone"
    assert least <= int(admitted(valkey, prefix, begun, call, 20)[0]) <= 40


def test_children_of_such_a_fork_share_the_slots_of_the_fleet(valkey: Server, prefix: str) -> None:
    begun = "SharedConcurrencyLimiter.from_url(URL, {KEY: 2}, prefix=PREFIX, deadline=30.0); held = []"
    call = "[held.append(limiter.acquire(KEY, timeout=0).__enter__()), True][1]"
    assert admitted(valkey, prefix, begun, call, 1) == ["2"]
