"""Why a pipeline does not run. The command prints the text; each kind has its exit code."""

from __future__ import annotations

from collections.abc import Sequence


class PipelineError(Exception):
    """It was to run, and failed."""

    exit_code = 1


class PipelineRefused(PipelineError):
    """The file, a topic, a schema or the SQL is wrong: nothing was read or written. One line for each thing found."""

    exit_code = 2

    def __init__(self, *problems: str) -> None:
        self.problems: Sequence[str] = problems
        super().__init__("\n".join(problems))
