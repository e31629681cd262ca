"""name_operations: a concurrency limit before an application of Quart learns of which route a request is."""

from quart import Quart, request

from batchlimit.integrations.operation import OPERATION


def name_operations(app: Quart) -> None:
    """Tell a ConcurrencyLimitMiddleware before an application the route of each request.

    Args:
        app: the application.

    Example:
        >>> from quart import Quart
        >>> name_operations(Quart("shop"))
    """

    async def name() -> None:
        if (rule := request.url_rule) is not None:
            request.scope[OPERATION] = rule.rule  # type: ignore[literal-required]

    app.before_request(name)
