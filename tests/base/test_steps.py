"""Steps that a thread goes through, and a signal handler that raises meanwhile."""

import pytest

from batchlimit.base.steps import Steps, run


class _Interrupting:
    """A step that has a handler raise while `run` looks at it."""

    @property
    def __class__(self) -> type:
        raise KeyboardInterrupt

    @__class__.setter
    def __class__(self, kind: type) -> None: ...


def test_a_handler_that_raises_between_two_steps_ends_them_before_its_error_is_handled() -> None:
    ended = []

    def steps() -> Steps[None]:
        try:
            yield _Interrupting()
        finally:
            ended.append(True)

    went = steps()
    with pytest.raises(KeyboardInterrupt):
        run(went)
    assert ended  # though `went` is still there: it is not left to the garbage collector
