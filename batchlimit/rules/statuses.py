"""Charge by the status of the response."""

from dataclasses import dataclass

from batchlimit.redaction import shown


@dataclass(frozen=True, slots=True, init=False)
class Statuses:
    """A `charge` of a rule: the cost is charged if the response has one of these statuses, and given back if not.

    Args:
        codes: statuses such as 401, and classes of them such as "4xx".

    Attributes:
        codes: as above.

    Raises:
        ValueError, TypeError: a code is no status, or there is none.

    Example:
        >>> from types import SimpleNamespace
        >>> from batchlimit.rules import Rule, Statuses
        >>> Rule("login", "5/minute", key="login:{ip}", charge=[401, 403]).charge == Statuses(401, 403)
        True
        >>> Statuses("4xx")(SimpleNamespace(status=404))
        True
    """

    codes: tuple[int | str, ...]

    def __init__(self, *codes: int | str) -> None:
        if not codes:
            raise ValueError("no status is ever charged: name one, such as 401 or '4xx'")
        for code in codes:
            _check(code)
        object.__setattr__(self, "codes", codes)

    def __call__(self, response: object) -> bool:
        """Return whether a response is charged.

        Args:
            response: an object with a `status`.

        Returns:
            Whether its status is one of these.
        """
        status = response.status  # type: ignore[attr-defined]
        return status in self.codes or f"{status // 100}xx" in self.codes


def _check(code: object) -> None:
    number = isinstance(code, int) and not isinstance(code, bool)
    if not number and not isinstance(code, str):
        raise TypeError(f"a status is a number such as 401, or '4xx', not {shown(code)}")
    if code not in ("1xx", "2xx", "3xx", "4xx", "5xx") and not (number and 100 <= code <= 599):  # type: ignore[operator]
        raise ValueError(f"a status is from 100 to 599, or a class such as '4xx', not {shown(code)}")
