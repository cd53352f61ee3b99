"""Which records are wanted, as one types it: words and fields, all of which must fit.

    till error              both words somewhere in key, value or headers
    "10.00 EUR"             these characters, with the blank
    key:42  value:paid      in one of them
    header:source=app       a header with exactly this value
    .order.id=7  .amount>10 a field of the value, which is JSON: = != > >= < <=
    -test                   not

There are no regular expressions: a filter costs what the record is long, whatever is typed.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from typing import Any

from semel.views.records import SeenRecord, Wanted
from semel.views.refusals import Misasked

_MAX_TERMS = 12
_MAX_CHARS = 500
_TERM = re.compile(r'\s*(-?)((?:[^\s"]|"[^"]*")+)')
_FIELD = re.compile(r"\.([^=!<>]+)(!=|>=|<=|=|>|<)(.*)", re.DOTALL)
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_HELP = (
    'words, "words with blanks", key:TEXT, value:TEXT, header:NAME=VALUE, .json.field=VALUE (or != > >= < <=), -TERM'
)


def record_filter(text: str) -> Wanted:
    """Raises Misasked for what it does not understand."""
    if len(text) > _MAX_CHARS:
        raise Misasked(f"the filter has {len(text)} characters; allowed: {_MAX_CHARS}")
    terms: list[Wanted] = []
    position = 0
    stripped = text.strip()
    while position < len(stripped):
        found = _TERM.match(stripped, position)
        if found is None:
            raise Misasked(f"filter {text!r}: a quotation mark is not closed; allowed: {_HELP}")
        wanted = _term(found[2], text)
        terms.append(_not(wanted) if found[1] else wanted)
        position = found.end()
    if len(terms) > _MAX_TERMS:
        raise Misasked(f"the filter has {len(terms)} terms; allowed: {_MAX_TERMS}")
    return lambda one: all(term(one) for term in terms)


def key_filter(key: bytes) -> Wanted:
    """Exactly this key."""
    return lambda one: one.marker is None and one.record.key == key


def _not(wanted: Wanted) -> Wanted:
    return lambda one: not wanted(one)


def _term(term: str, text: str) -> Wanted:
    field = _FIELD.fullmatch(term)
    if field is not None:
        return _json_field(field[1].split("."), field[2], _unquoted(field[3]))
    name, separator, rest = term.partition(":")
    if separator and name in ("key", "value"):
        needle = _unquoted(rest).lower().encode()
        if name == "key":
            return lambda one: needle in (one.record.key or b"").lower()
        return lambda one: needle in (one.record.value or b"").lower()
    if separator and name == "header":
        header, equals, value = rest.partition("=")
        if not equals:
            raise Misasked(f"filter {text!r}: {term!r} names no value; allowed: header:NAME=VALUE")
        pair = (_unquoted(header), _unquoted(value).encode())
        return lambda one: pair in one.record.headers
    return _anywhere(_unquoted(term).lower().encode())


def _unquoted(text: str) -> str:
    return text.replace('"', "")


def _anywhere(needle: bytes) -> Wanted:
    def wanted(one: SeenRecord) -> bool:
        record = one.record
        return (
            needle in (record.value or b"").lower()
            or needle in (record.key or b"").lower()
            or any(
                needle in name.lower().encode() or needle in (value or b"").lower() for name, value in record.headers
            )
        )

    return wanted


def _json_field(path: list[str], sign: str, text: str) -> Wanted:
    try:
        wished: Any = json.loads(text)
    except ValueError:
        wished = text

    def wanted(one: SeenRecord) -> bool:
        try:
            value: Any = json.loads(one.record.value or b"")
        except (ValueError, RecursionError):
            return False
        for name in path:
            if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
                value = value[int(name)]
            elif isinstance(value, dict) and name in value:
                value = value[name]
            else:
                return sign == "!="
        if sign in ("=", "!="):
            is_same = value in (wished, text)
            return is_same if sign == "=" else not is_same
        try:
            return _ORDER[sign](value, wished)
        except TypeError:
            return False

    return wanted
