"""What tests of stores share."""

import pytest

from tests.stores.opened import APIS


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)
