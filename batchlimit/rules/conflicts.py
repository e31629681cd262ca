"""What rules must agree on: names, the quotas of the keys that they share, and where values for keys come from."""

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain, combinations, pairwise

from batchlimit.base.key import by_name
from batchlimit.base.redaction import shown
from batchlimit.quota.overrides.code import CodeLimit
from batchlimit.quota.quota import Quota
from batchlimit.rules.key import KeyTemplate
from batchlimit.rules.pattern import Pattern
from batchlimit.rules.rule import Rule, RulesError, fitting


def check_names(rules: Sequence[Rule]) -> None:
    """Check that all are rules, and that each has a name of its own."""
    names = set()
    for rule in rules:
        if not isinstance(rule, Rule):
            raise TypeError(f"Rules are made of Rule objects, not of {shown(rule)}")
        if rule.name in names:
            raise RulesError("two rules have this name: headers and metrics could not tell them apart", rule=rule.name)
        names.add(rule.name)


def by_pattern(rules: Sequence[Rule], keys: Sequence[KeyTemplate]) -> dict[str, Rule]:
    """Return a rule for each pattern of keys, those with more colons first; RulesError if a key could be of two."""
    sharing: dict[tuple[object, ...], list[int]] = {}
    for number, key in enumerate(keys):
        sharing.setdefault(key.shape, []).append(number)
    for numbers in sharing.values():
        for one, other in pairwise(numbers):
            _check_shared(rules[one], rules[other])
        for one, other in combinations(numbers, 2):
            _check_costs(rules[one], rules[other])
    _check_apart(rules, keys, [numbers[0] for numbers in sharing.values()])
    order = sorted((numbers[0] for numbers in sharing.values()), key=lambda number: -len(keys[number].segments))
    return {keys[number].pattern: rules[number] for number in order}


def by_key(rules: Sequence[Rule]) -> dict[str, Rule]:
    """Return the rules that routes ask for, by their key. Raises RulesError if two have one key."""
    found: dict[str, Rule] = {}
    for rule in rules:
        if not rule.match and found.setdefault(rule.key, rule) is not rule:
            problem = f"routes ask for the key {shown(rule.key)}, and rule {found[rule.key].name!r} has it too"
            raise _wrong(rule, "key", f"{problem}. {_renaming(rule)}")
    return found


def check_replaced(rules: Sequence[Rule]) -> None:
    """Check that rules replace others that there are, and that of each circle of rules one would apply."""
    replaced = {rule.name: rule.replaces for rule in rules}
    asked = {rule.name for rule in rules if not rule.match}
    for rule in rules:
        for name in rule.replaces:
            if name not in replaced:
                meant = get_close_matches(name, replaced, 1)
                hint = f"did you mean {meant[0]!r}?" if meant else f"there are {', '.join(replaced)}"
                raise _wrong(rule, "replaces", f"there is no rule {shown(name)}: {hint}")
            if rule.name in asked or name in asked:
                whose = "it" if rule.name in asked else f"rule {name!r}"
                problem = f"routes ask for {whose}, after the rules that match were charged: give {whose} a match"
                raise _wrong(rule, "replaces", problem)
            if rule.name in _reached(name, replaced):
                problem = f"it replaces {name!r}, which replaces it in turn: no rule would apply"
                raise _wrong(rule, "replaces", problem)


def _reached(name: str, replaced: Mapping[str, Sequence[str]]) -> set[str]:
    """Return a rule and all that it replaces, in however many steps."""
    found, waiting = set[str](), [name]
    while waiting:
        if (each := waiting.pop()) not in found:
            found.add(each)
            waiting += replaced.get(each, ())
    return found


def _wrong(rule: Rule, field: str, problem: str) -> RulesError:
    return RulesError(problem, rule=rule.name, field=field)


def unasked(key: object, of_routes: Collection[str], rules: Sequence[Rule]) -> RulesError:
    """Return the error of a route that asks for a key which no rule has for it."""
    if matching := [rule.name for rule in rules if rule.key == key]:
        problem = f"it matches requests by itself, and a route asks for its key {shown(key)}: give it match=None"
        return RulesError(problem, rule=matching[0], field="match")
    meant = get_close_matches(str(key), of_routes, 1)
    hint = f"did you mean {shown(meant[0])}?" if meant else f"there are {', '.join(map(shown, of_routes)) or 'none'}"
    return RulesError(f"no rule with match=None has the key {shown(key)}: {hint}")


def check_limits(limits: Mapping[str, Quota | str], rules: Mapping[str, Rule]) -> dict[str, CodeLimit]:
    """Return what holds for some keys in place of their rule's quota; RulesError: it has none, or a cost never fits."""
    if not isinstance(limits, Mapping):
        raise TypeError(f"limits come as a mapping from key or pattern to quota, not as {shown(limits)}")
    rule_of, found = by_name(rules), dict[str, CodeLimit]()
    for name, given in limits.items():
        if name in rules or (rule := rule_of(name)) is None:
            why = "a rule has this quota already" if name in rules else "no rule has such keys"
            raise RulesError(f"limit {shown(name)}: {why}; rules have {', '.join(map(shown, rules))}", field="limits")
        try:
            quota = given if isinstance(given, Quota) else Quota.parse(given)
        except (ValueError, TypeError) as error:
            raise RulesError(f"limit {shown(name)}: {error}", field="limits") from error
        fitting("limits", rule.cost, quota, rule.name)
        found[name] = CodeLimit(quota, rule.on_failure, rule.mode)
    return found


def _check_apart(rules: Sequence[Rule], keys: Sequence[KeyTemplate], numbers: Sequence[int]) -> None:
    """Check that keys of different shapes are never the same. Only those that begin alike are compared."""
    seen: dict[int, dict[str | None, list[int]]] = {}
    for number in numbers:
        key = keys[number]
        alike = seen.setdefault(len(key.segments), {})
        begins = key.segments[0].before if key.segments[0].field is None else None
        others = [*alike.get(begins, ()), *alike.get(None, ())] if begins is not None else chain(*alike.values())
        for other in others:
            if keys[other].overlaps(key):
                one, rule = rules[other], rules[number]
                problem = f"a client could choose a value that makes its key {shown(rule.key)} one of rule {one.name!r}"
                raise _wrong(rule, "key", f"{problem}, {shown(one.key)}. {_renaming(rule)}")
        alike.setdefault(begins, []).append(number)


def _check_shared(one: Rule, other: Rule) -> None:
    """Check that two rules whose keys are the same agree on what belongs to the key."""
    for what in ("quota", "on_failure", "mode"):
        if (theirs := getattr(one, what)) != (mine := getattr(other, what)):
            problem = f"it shares its keys, {shown(other.key)}, with rule {one.name!r}, whose {what} is another"
            raise _wrong(other, "key", f"{problem}: {mine} against {theirs}. {_renaming(other)}")


def _check_costs(one: Rule, other: Rule) -> None:
    """Check that a request that both rules match can ever be admitted: the costs of one key add up."""
    if not isinstance(one.cost, int) or not isinstance(other.cost, int) or other.quota.denies_all:
        return
    if one.cost + other.cost > other.quota.largest_cost and any(
        Pattern.parse(mine).overlaps(Pattern.parse(theirs)) for mine in one.match for theirs in other.match
    ):
        problem = f"its cost of {other.cost} and that of rule {one.name!r}, {one.cost}, add up, for both have the key"
        remedy = f"they never fit a burst of {other.quota.largest_cost}: lower a cost or raise it"
        raise _wrong(other, "cost", f"{problem} {shown(other.key)}; {remedy}")


def _renaming(rule: Rule) -> str:
    return f"Rename one key, as in {shown(rule.name.replace('/', '-') + ':' + rule.key)}"


def check_values(rules: Sequence[Rule], keys: Sequence[KeyTemplate], identities: Collection[str]) -> None:
    """Check that each field of a key has a value: of the identity, or of every pattern of its rule, but not of both."""
    for rule, key in zip(rules, keys, strict=True):
        for text in rule.match:
            parameters = {name for name, _ in Pattern.parse(text).names}
            for field in key.fields:
                if field not in parameters and field not in identities:
                    meant = get_close_matches(field, names := [*identities, *parameters], 1)
                    hint = f"did you mean {{{meant[0]}}}?" if meant else f"there are {', '.join(names) or 'no names'}"
                    problem = f"{{{field}}} of the key {shown(rule.key)} is neither in the identity nor in"
                    raise _wrong(rule, "key", f"{problem} {shown(text)}: {hint}")
                if field in parameters and field in identities:
                    problem = f"{{{field}}} of {shown(text)} is a name of the identity too; rename the path parameter"
                    raise _wrong(rule, "match", problem)
