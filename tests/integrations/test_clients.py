"""Clients that test a server."""

from concurrent.futures import ThreadPoolExecutor

from tests.integrations.clients import Clients


def test_each_thread_has_a_client_of_its_own_until_the_end() -> None:
    with Clients(1) as clients:
        mine = clients.own
        with ThreadPoolExecutor(1) as pool:
            others = [pool.submit(lambda: clients.own).result() for _ in range(2)]
        assert clients.own is mine
        assert others[0] is others[1] is not mine
        assert not mine.is_closed
    assert all(each.is_closed for each in (mine, others[0]))
