"""A question before something that cannot be taken back."""

from __future__ import annotations

import sys

from semel.cli.failures import WrongCall


def says_yes(question: str) -> bool:
    """Raises WrongCall where nobody can answer."""
    if not sys.stdin.isatty():
        raise WrongCall("nobody can be asked here: say --yes if it is meant")
    print(f"{question} Type yes: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() == "yes"
