import batchlimit
from batchlimit import errors


def test_every_public_name_exists_and_they_are_sorted() -> None:
    assert sorted(batchlimit.__all__) == batchlimit.__all__
    assert all(hasattr(batchlimit, name) for name in batchlimit.__all__)


def test_every_error_is_public_and_of_one_family() -> None:
    raised = [each for each in vars(errors).values() if isinstance(each, type)]
    assert all(issubclass(each, batchlimit.BatchLimitError) for each in raised)
    assert {each.__name__ for each in raised} <= set(batchlimit.__all__)
