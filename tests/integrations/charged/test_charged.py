"""The page says what a caller is charged in each framework, case by case: each of them is served, and asked."""

import pytest

from tests.integrations.charged.faces import FACES
from tests.integrations.charged.page import GRPC, column, found_of, shown


@pytest.mark.filterwarnings("ignore:.*FileIO.*cases.py.*:pytest.PytestUnraisableExceptionWarning")  # by Quart
@pytest.mark.parametrize("face", [*FACES, GRPC])
def test_the_page_says_what_is_charged(face: str) -> None:
    found = found_of(face)
    for rule in ("path", "route", "outcome"):
        assert shown(rule, face) == column(rule, face, found)
