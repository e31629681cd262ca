"""check_store: whether a store keeps the contract."""

from collections.abc import Callable

from batchlimit.stores.protocols import AsyncStore, Store
from batchlimit.testing.contract import keys, later, lending, messages, promise, quotas, returns
from batchlimit.testing.contract.rule import Rule, rules_of
from batchlimit.testing.contract.tasks import BlockingStore

_MODULES = (lending, messages, returns, quotas, later, promise, keys)


def store_rules(seeds: int = 3) -> list[Rule]:
    """Return the rules that every store has to keep, for a test of each: `rule.check(store)`, with a new store.

    Args:
        seeds: how many random sequences of messages are sent, for each rule about them (default 3, at most 10).

    Returns:
        Rules, each with a `name` and a `check`.

    Example:
        >>> from batchlimit.stores import MemoryStore
        >>> for rule in store_rules():
        ...     if "share" in rule.name:
        ...         rule.check(MemoryStore())
    """
    return [rule for module in _MODULES for rule in rules_of(module, seeds)]


def check_store(make: Callable[[], Store | AsyncStore], seeds: int = 3) -> None:
    """Check that a store keeps all rules, and say which it breaks.

    Args:
        make: returns a new store whose buckets nobody has used, such as one with another prefix; for threads or for
            tasks. It is closed.
        seeds: as of `store_rules` (default 3).

    Raises:
        ExceptionGroup: of an error for each rule that is broken.

    Example:
        >>> from batchlimit.stores import MemoryStore
        >>> from batchlimit.testing import check_store
        >>> check_store(MemoryStore)
    """
    broken = [error for rule in store_rules(seeds) if (error := _error(rule, make)) is not None]
    if broken:
        raise ExceptionGroup(f"the store breaks {len(broken)} rules", broken)


def _error(rule: Rule, make: Callable[[], Store | AsyncStore]) -> Exception | None:
    made = make()
    store = BlockingStore(made) if isinstance(made, AsyncStore) else made
    try:
        rule.check(store)
    except Exception as error:  # noqa: BLE001  the store's own, which may be anything
        error.add_note(f"the rule: {rule.name.replace('_', ' ')}")
        return error
    finally:
        store.close()
    return None
