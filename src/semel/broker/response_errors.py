"""Which errors an answer tells of, for the metrics: its own code, and those of the items that it lists."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from semel.metrics.node_counts import RequestCounts
from semel.wire.schema import Response, Struct, has_field, struct_arrays

_CODE = "error_code"
# An answer may list a hundred thousand items. The first ones are enough to see that something is wrong.
_MOST_ITEMS = 1000


class _Shape(NamedTuple):
    has_code: bool
    arrays: tuple[tuple[str, _Shape], ...]  # those that hold error codes


_NO_CODES = _Shape(False, ())


def count_errors(counts: RequestCounts, api_key: int, response: Response) -> None:
    shape = _shape(type(response))
    if not shape.arrays:
        if shape.has_code and response.error_code:  # type: ignore[attr-defined]
            counts.errors[api_key, response.error_code] += 1  # type: ignore[attr-defined]
        return
    left = _MOST_ITEMS
    for code in _codes(response, shape):
        if code:
            counts.errors[api_key, code] += 1
        left -= 1
        if not left:
            return


def _codes(item: Any, shape: _Shape) -> Iterator[int]:
    if shape.has_code:
        yield item.error_code
    for name, elements in shape.arrays:
        array = getattr(item, name)
        # One that is made while it is encoded is not there yet.
        if type(array) is list:
            for element in array:
                yield from _codes(element, elements)


@cache
def _shape(cls: type[Struct]) -> _Shape:
    arrays = [(name, _shape(struct)) for name, struct in struct_arrays(cls)]
    return _Shape(has_field(cls, _CODE), tuple((name, shape) for name, shape in arrays if shape != _NO_CODES))
