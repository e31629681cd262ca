"""What a message says if nobody gives it, as its documentation tells."""

import ast
import re

import pytest

from batchlimit.bucket.messages import Ask, GiveBack, Grant, Level, Spend
from batchlimit.bucket.state import BucketState


@pytest.mark.parametrize("message", [Ask, Grant, Spend, GiveBack, Level, BucketState])
def test_a_field_has_the_default_that_its_documentation_tells(message: type) -> None:
    fields = re.split(r"\n {8}(?=\w+: )", (message.__doc__ or "").partition("    Example:")[0])[1:]
    told = [(field.partition(":")[0], re.search(r"default (\(\)|[^):;]+)", field)) for field in fields]
    defaults = {name: ast.literal_eval(found[1]) for name, found in told if found}
    assert defaults == message._field_defaults  # type: ignore[attr-defined]
