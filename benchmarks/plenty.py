"""A store that has plenty of everything, answers at once, and remembers nothing: what is left is the limiter."""

from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level
from batchlimit.quota.quota import Quota

_LEVEL = 1000
_EPOCH = 1_800_000_000_000_000


class Plenty:
    """Grants what is wanted for `lease` seconds. It keeps no bucket, so any number of keys costs it nothing."""

    address = "plenty://"
    is_prompt = True

    def __init__(self, lease: float = 0.4) -> None:
        self._lease = lease

    def take(self, key: str, quota: Quota, ask: Ask) -> Grant:
        return Grant(ask.want, ask.held, 0.0, self._lease, 0.0, _LEVEL, 1, _EPOCH, 1)

    def give_back(self, key: str, quota: Quota, back: GiveBack) -> int:
        return back.tokens

    def peek(self, key: str, quota: Quota) -> Level:
        return Level(_LEVEL, 0, 1)

    def part(self, key: str) -> str:
        return ""

    def probe(self, key: str) -> None:
        pass

    def after_fork(self) -> None:
        pass

    def close(self) -> None:
        pass
