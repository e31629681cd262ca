"""Arguments that all faces take, as the rules need them."""

from collections.abc import Iterable

from batchlimit.rules import Rule, Rules, RulesError


def rules_of(given: Rules | Iterable[Rule]) -> Rules:
    """Return the rules for requests.

    Args:
        given: Rules, or several Rule.

    Returns:
        Rules.
    """
    return given if isinstance(given, Rules) else Rules(given)


def message_rules_of(given: Rules | Iterable[Rule]) -> Rules:
    """Return the rules for messages, which have no response.

    Args:
        given: Rules, or several Rule.

    Returns:
        Rules.

    Raises:
        RulesError: one of them has a `charge`.
    """
    rules = rules_of(given)
    for rule in rules:
        if rule.charge is not None:
            raise RulesError("a message has no response to charge by: leave it out", rule=rule.name, field="charge")
    return rules
