"""What a metric is. Each is declared once: the exposition and the documentation are made from that declaration."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Type(Enum):
    """As OpenMetrics calls them. The samples of a counter end in `_total`, which its name leaves out."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class Metric(NamedTuple):
    name: str
    type: Type
    sentence: str
    labels: tuple[str, ...] = ()

    @property
    def shown_name(self) -> str:
        """As queries name it."""
        suffix = {Type.COUNTER: "_total", Type.INFO: "_info"}.get(self.type, "")
        return self.name + suffix
