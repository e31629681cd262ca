"""Agents of Pydantic AI run on the fleet's seats, and a seat that another task gives back is free."""

import asyncio

import pytest

from batchlimit import ConcurrencyLimited

pydantic_ai = pytest.importorskip("pydantic_ai", reason="of the group 'agents'")


def test_agents_run_on_seats_of_the_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    from pydantic_ai.models.test import TestModel

    from examples import pydantic_ai_limits

    monkeypatch.setattr(pydantic_ai_limits, "STORE", "memory://")

    async def main() -> None:
        seats = pydantic_ai_limits.FleetConcurrency("gpt", 2, timeout=0)
        agent = pydantic_ai.Agent(TestModel(custom_output_text="fine"), max_concurrency=seats)
        assert (await agent.run("hello")).output == "fine"
        await seats.acquire("one")
        await seats.acquire("two")
        with pytest.raises(ConcurrencyLimited):
            await agent.run("hello")
        await asyncio.create_task(_release(seats))
        assert (await agent.run("hello")).output == "fine"
        seats.release()
        await seats.close()

    async def _release(seats: pydantic_ai_limits.FleetConcurrency) -> None:
        seats.release()

    asyncio.run(main())
