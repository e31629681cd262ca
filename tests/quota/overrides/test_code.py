"""What a file says instead of the code: its quotas, and from which revision they count."""

from typing import Any

import pytest

from batchlimit.quota.lookup import quota_rule
from batchlimit.quota.overrides.code import Code, CodeLimit, CodeLimits, Rank
from batchlimit.quota.quota import Quota

FIVE, SIX, SEVEN = Quota(5.0), Quota(6.0), Quota(7.0)


def obeyed(*files: dict[str, CodeLimit]) -> Code:
    """Return what holds after a limiter obeyed these files, one after the other."""
    made = found = Code(quota_rule(Quota(9.0)), "closed", "enforce", Rank(3, 50.0))
    for names in files:
        found = made.by_file(CodeLimits(names), found, 80.0)
    return found


@pytest.mark.parametrize(("said", "counts"), [(None, 3), (0, 0), (7, 7)])
def test_a_file_without_a_revision_has_that_of_the_limiter(said: int | None, counts: int) -> None:
    made = Code(quota_rule(Quota(9.0)), "closed", "enforce", Rank(3, 50.0))
    found = made.by_file(CodeLimits({"ann": CodeLimit(FIVE)}, said), made, 80.0)
    assert (found.rank, found.quota("ann")) == (Rank(counts, 80.0), FIVE)


@pytest.mark.parametrize(("mode", "is_enforced"), [("enforce", True), ("shadow", False)])
def test_all_keys_are_enforced_unless_the_code_says_another_mode(mode: Any, is_enforced: bool) -> None:
    assert Code(quota_rule(FIVE), "closed", mode, Rank(0, 0.0)).is_enforced is is_enforced


@pytest.mark.parametrize(
    ("files", "quota", "policy"),
    [
        ([{"ann": FIVE}], FIVE, "ann"),
        ([{"ann": FIVE}, {"ann": SIX}], SIX, "ann"),
        ([{"ann": FIVE}, {"bob": SIX}], FIVE, "ann"),
        ([{"ann": FIVE}, {"bob": SIX}, {"cid": SEVEN}], FIVE, "ann"),
        ([{"ann": FIVE}, {"ann": SEVEN, "bob": SIX}, {"bob": SIX}], SEVEN, "ann"),
        ([{"ann": FIVE}, {"*": SIX}], SIX, "*"),
        ([{"ann": FIVE}, {"*": SIX}, {"ann": SEVEN}], SEVEN, "ann"),
    ],
)
def test_a_name_that_a_file_no_longer_has_keeps_its_last_quota_where_no_other_matches(
    files: list[dict[str, Quota]], quota: Quota, policy: str
) -> None:
    code = obeyed(*({name: CodeLimit(each) for name, each in names.items()} for names in files))
    assert code.quota("ann") == quota
    assert code.policies.names[code.policies.number(code.quota("ann"))] == policy


@pytest.mark.parametrize(("later", "is_kept"), [(5.0, True), (6.0, False)])
def test_each_name_of_a_file_has_a_quota_of_its_own_which_stays_while_the_file_says_the_same(
    later: float, is_kept: bool
) -> None:
    """Statistics by policy know a quota by identity."""
    before = obeyed({"ann": CodeLimit(FIVE), "bob": CodeLimit(FIVE)})
    after = before.by_file(CodeLimits({"ann": CodeLimit(Quota(later))}), before, 90.0)
    assert before.quota("ann") is not before.quota("bob")
    with pytest.raises(ValueError, match="no quota for key 'dan'"):
        before.quota("dan")
    assert (after.quota("ann") is before.quota("ann")) is is_kept
    assert after.policies.names[after.policies.number(before.quota("ann"))] == "ann", "a key may go by it still"


@pytest.mark.parametrize(
    ("files", "is_enforced"),
    [
        ([{"ann": CodeLimit(FIVE)}], True),
        ([{"ann": CodeLimit(FIVE, mode="enforce"), "bob": CodeLimit(FIVE)}], True),
        ([{"ann": CodeLimit(FIVE, mode="shadow"), "bob": CodeLimit(FIVE)}], False),
        ([{"ann": CodeLimit(FIVE, mode="open")}, {"bob": CodeLimit(FIVE)}], False),
    ],
)
def test_all_keys_are_enforced_unless_a_file_says_or_said_another_mode(
    files: list[dict[str, CodeLimit]], is_enforced: bool
) -> None:
    assert obeyed(*files).is_enforced is is_enforced


def test_a_key_of_which_the_file_says_no_more_fails_and_is_enforced_as_the_code_says() -> None:
    made = Code(quota_rule(Quota(9.0)), "open", "shadow", Rank(3, 50.0))
    found = made.by_file(CodeLimits({"ann": CodeLimit(FIVE)}), made, 80.0)
    assert (found.policy("ann"), found.mode("ann"), found.is_enforced) == (made.policy("ann"), "shadow", False)


def test_a_long_key_without_a_quota_is_named_as_its_caller_named_it() -> None:
    with pytest.raises(ValueError, match="no quota for key 'uuu") as caught:
        obeyed({"ann": CodeLimit(FIVE)}).quota("u" * 300)
    assert "#" not in str(caught.value)
