"""Where a node has the committed metadata from: its own controller, which leads their log, or that of another node."""

from __future__ import annotations

from typing import Protocol

from semel.controller.image import MetadataImage


class MetadataSource(Protocol):
    @property
    def committed(self) -> MetadataImage:
        """What the rest of the node sees."""

    @property
    def next_offset(self) -> int:
        """Where the next record will stand, or is to be found."""
