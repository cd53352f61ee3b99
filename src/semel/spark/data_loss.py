"""What is done when records that should be read are not there any more: the query fails, or says so and goes on."""

from __future__ import annotations

import logging

from semel.client.errors import FatalError

logger = logging.getLogger("semel.spark")


class DataLost(FatalError):
    """Records were deleted, or never came to be, before they were read."""

    advice = "to go on with what is left, set the option failOnDataLoss to false"


def report_loss(text: str, *, fails: bool) -> None:
    if fails:
        raise DataLost(text)
    logger.warning("data was lost: %s; the query goes on, since failOnDataLoss is false", text)
