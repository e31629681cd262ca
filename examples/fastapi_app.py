"""FastAPI behind one limit for all workers: `uvicorn examples.fastapi_app:app --workers 4`, and Redis at REDIS_URL."""

import os
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException

from batchlimit.integrations.fastapi import add_rate_limits, limited, responses
from batchlimit.rules import Rule

USERS = {"secret-of-ann": "ann", "secret-of-bob": "bob"}

RULES = [
    Rule("all", "5000/s", key="all"),
    Rule("address", "20/s burst 40", key="address:{ip}", match="/api/*"),
    Rule("login", "5/minute", key="login:{ip}", match="POST /login", charge=[401]),  # only failed ones
    Rule("search", "10/minute", key="search:{user}", match=None),  # for routes that ask for it
]


def current_user(x_api_key: Annotated[str, Header()]) -> str:
    """Return whose key it is."""
    if x_api_key not in USERS:
        raise HTTPException(401)
    return USERS[x_api_key]


def by_user(user: Annotated[str, Depends(current_user)]) -> dict[str, Any]:
    """Return the values for keys that a route knows."""
    return {"user": user}


app = FastAPI(responses=responses())
limits = add_rate_limits(app, os.environ.get("REDIS_URL", "redis://localhost:6379/0"), RULES)
api = APIRouter(prefix="/api", dependencies=[Depends(current_user)])


@api.get("/search", dependencies=[Depends(limited("search:{user}", identify=by_user))])
def search(q: str) -> list[str]:
    """Search: one token."""
    return [q]


@api.get("/report", dependencies=[Depends(limited("search:{user}", cost=5, identify=by_user))])
async def report() -> str:
    """Report: five tokens of the same bucket."""
    return "report"


@app.post("/login")
async def login(password: str) -> str:
    """Log in."""
    if password != "correct":
        raise HTTPException(401)
    return "welcome"


@app.get("/limits")
async def counts() -> dict[str, Any]:
    """Return what became of the requests of this worker."""
    statistics = limits.statistics()
    return {"requests": statistics.requests, "unmatched": statistics.unmatched}


app.include_router(api)
