"""CRC-32C by the package crc32c, without what its `__init__` loads: a sixth of the time to import a client."""

from __future__ import annotations

from importlib.machinery import ExtensionFileLoader, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING


def _extension() -> ModuleType | None:
    """The part of the package that computes; None if it is built in another way than we know."""
    package = PathFinder.find_spec("crc32c")
    if package is None or package.submodule_search_locations is None:
        return None
    found = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if found is None or not isinstance(found.loader, ExtensionFileLoader):
        return None
    module = found.loader.create_module(found)
    found.loader.exec_module(module)
    return module if hasattr(module, "crc32c") else None


if TYPE_CHECKING:
    from crc32c import crc32c as crc32c
else:
    _found = _extension()
    if _found is None:
        from crc32c import crc32c
    else:
        crc32c = _found.crc32c
