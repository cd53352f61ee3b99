"""The named integers of the log. Aliases, not wrappers: they cost nothing on the produce path and say what is meant."""

from typing import TypeAlias

Offset: TypeAlias = int
ProducerId: TypeAlias = int
Epoch: TypeAlias = int
Sequence: TypeAlias = int
