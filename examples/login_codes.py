"""A service that sends login codes by mail: `uvicorn examples.login_codes:app`, with Redis at REDIS_URL.

An address gets at most 5 codes a minute and 100 a day. The mail provider takes 2 messages a second from all workers.
"""

import os
from typing import Any

from fastapi import FastAPI

from batchlimit import AsyncRateLimiter
from batchlimit.integrations.fastapi import add_rate_limits
from batchlimit.rules import Rule

STORE = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
RULES = [Rule("codes", "5/minute; 100/day", key="codes:{ip}", match="POST /codes")]

app = FastAPI()
limits = add_rate_limits(app, STORE, RULES)
provider = AsyncRateLimiter.from_url(STORE, "2/s", prefix="mail")
sent: list[str] = []


@provider.limit("messages", timeout=5.0)  # waits for its turn; raises RateLimited if that takes longer
async def send(address: str) -> None:
    """Hand a message to the mail provider."""
    sent.append(address)


@app.post("/codes")
async def new_code(address: str) -> dict[str, Any]:
    """Send a code."""
    await send(address)
    return {"sent": len(sent)}
