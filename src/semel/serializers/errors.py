"""What can go wrong between a serializer and its registry, or with what it needs."""

from __future__ import annotations

import importlib
from types import ModuleType

from semel.client.errors import BadSetting, FatalError, RetriableError


class RegistryUnavailable(RetriableError):
    """The schema registry did not answer, or said that it cannot now."""

    advice = "see that the schema registry runs and can be reached; then try again"


class RegistryRefused(FatalError):
    """The schema registry refused: the text has its reason, `registry_code` its number."""

    def __init__(self, text: str, *, registry_code: int = -1) -> None:
        super().__init__(text)
        self.registry_code = registry_code


class NotFramed(ValueError):
    """Bytes that do not begin as the registry's framing does."""


def needed(module: str, what: str, extra: str) -> ModuleType:
    """A library that is installed only by those who use it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        package = module.partition(".")[0]
        raise BadSetting(f"{what} needs {package}, which is not installed: pip install 'semel[{extra}]'") from None
