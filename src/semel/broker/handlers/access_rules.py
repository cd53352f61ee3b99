"""What the three APIs of access rules have in common: there is no authoriser that keeps any."""

from __future__ import annotations

from typing import NoReturn

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode


def refuse_rules(context: RequestContext, operation: Operation) -> NoReturn:
    """Raises Refused: not allowed, or SECURITY_DISABLED."""
    context.authorise_cluster(operation)
    raise Refused(ErrorCode.SECURITY_DISABLED, "no authoriser is configured, so there are no access rules")
