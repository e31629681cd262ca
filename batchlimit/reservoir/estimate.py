"""A charge that was estimated, and is settled once its cost is known."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from batchlimit.base.redaction import shown
from batchlimit.base.unique import Unique
from batchlimit.errors import BatchLimitError, Unfit
from batchlimit.events import log_event, named
from batchlimit.quota.key import NeverFits, check_costs, check_key
from batchlimit.reservoir.forecast import Forecast

OnError = Literal["keep", "refund"]
"""What becomes of an estimate whose block ended in an exception: it stays charged, or is taken back."""


class Estimate:
    """A charge of one key or several, and whether it is final. Costs are whole tokens."""

    __slots__ = ("costs", "on_error", "settled")

    def __init__(self, costs: dict[str, int], on_error: OnError) -> None:
        if on_error not in get_args(OnError):
            raise ValueError(f"on_error must be 'keep' or 'refund', not {shown(on_error)}")
        self.costs = costs
        self.on_error = on_error
        self.settled = False

    def __repr__(self) -> str:
        told = ", ".join(f"{cost} at {shown(key)}" for key, cost in self.costs.items())
        return f"<Estimate of {told}: {'settled' if self.settled else 'open'}>"

    def settle(self, actual: Mapping[str, object]) -> dict[str, int]:
        """Return by key how much is still to be charged, less than 0 if it is to be refunded.

        A key that is not named stays as it was estimated. Raises RuntimeError a second time.
        """
        if not isinstance(actual, Mapping):
            raise TypeError(f"settle needs whole tokens by key, like {{'model:tpm': 900}}, not {actual!r}")
        checked = {key: _checked(tokens) for key, tokens in actual.items()}
        if unknown := sorted(checked.keys() - self.costs.keys()):
            raise ValueError(f"nothing was reserved at {shown(unknown[0])}, but at {shown(list(self.costs))}")
        self.check_open()
        self.settled = True
        return {key: tokens - self.costs[key] for key, tokens in checked.items()}

    def check_open(self) -> None:
        """Raise RuntimeError where it was settled before."""
        if self.settled:
            raise RuntimeError("this reservation was settled before, by settle() or at the end of its block")

    def close(self, *, failed: bool) -> dict[str, int]:
        """End the block: return by key how much is to be refunded. An estimate that nobody settled is what it was."""
        is_taken_back = failed and not self.settled and self.on_error == "refund"
        self.settled = True
        return {key: cost for key, cost in self.costs.items() if cost} if is_taken_back else {}


class SettledOnce(Unique):
    """What is charged of one key or several, in either API, and its block."""

    __slots__ = ("_adjust", "_estimate")
    _instead = "settle it where it was made, and send the actual cost there"

    def __init__(self, estimate: Estimate, adjust: Callable[[str, int], Any]) -> None:
        """`adjust` charges a key so many tokens more; less than 0 are refunded."""
        self._estimate, self._adjust = estimate, adjust

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._estimate}>"

    @property
    def settled(self) -> bool:
        """Whether what is charged is final."""
        return self._estimate.settled

    def _end(self, error: BaseException | None) -> None:
        """End the block, which raised this."""
        for key, back in self._estimate.close(failed=error is not None).items():
            try:
                self._adjust(key, -back)  # whose way to the store a cancelled task does not wait for
            except BatchLimitError as away:  # the block's own error is the one to be seen
                told, message = (back, named(key), away), "%d tokens of %s were not refunded: %s"
                log_event("tokens.not_refunded", message, *told, key=key, tokens=back, reason=str(away))


def estimated(key: object, cost: object) -> dict[str, Any]:
    """Return what is estimated by key: at one key, or at those of a mapping or of pairs if no cost is given."""
    if cost is not None:
        return {check_key(key): cost}
    if isinstance(key, str):
        raise TypeError(f"reserve({shown(key)}, ...) needs a cost")
    return check_costs(key)


def unfit(never: NeverFits, forecast: Forecast, now: float) -> Unfit:
    """Return what to answer where an estimate is above the burst of its key."""
    return Unfit(never.key, never.cost, never.largest, forecast.told(math.inf, "denied", now))


def _checked(actual: object) -> int:
    if isinstance(actual, bool) or not isinstance(actual, int):
        raise TypeError(f"actual must be a whole number of tokens, not {shown(actual)}")
    if actual < 0:
        raise ValueError(f"actual must be at least 0 tokens, not {actual}")
    return actual
