"""Writes src/semel/client/option_types.py from the declarations, so that type checkers know every setting."""

from __future__ import annotations

import sys
import textwrap
import typing
from collections.abc import Iterator

from semel.client.admin.settings import AdminSettings
from semel.client.consumer.settings import ConsumerSettings
from semel.client.producer.settings import ProducerSettings
from semel.client.settings import ConnectionSettings, Declared, declared

OPENING = '''\
"""The settings of the client as type checkers and editors see them.

Written by `make docs` from the declarations (semel.client.document_options); a test compares them. Serializers are
arguments of their own, because the types of keys and values come from them.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypedDict

if TYPE_CHECKING:
    from semel.client.consumer.membership.assignors import Assignor

    AssignorChoice: TypeAlias = str | type[Assignor] | Assignor


class TokenProvider(Protocol):
    def token(self) -> object: ...
'''
_PLAIN = {bool: "bool", int: "int", float: "float", str: "str", tuple[str, ...]: "str | Sequence[str]"}


def module() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield OPENING
    common = declared(ConnectionSettings)
    yield from _class("ConnectionOptions", "TypedDict", ConnectionSettings, {})
    yield from _class("ProducerOptions", "ConnectionOptions", ProducerSettings, common)
    yield from _class("ConsumerOptions", "ConnectionOptions", ConsumerSettings, common)
    yield from _class("AdminOptions", "ConnectionOptions", AdminSettings, common)


def _class(
    name: str, base: str, settings: type[ConnectionSettings], without: typing.Mapping[str, Declared]
) -> Iterator[str]:
    hints = typing.get_type_hints(settings)
    yield f"\nclass {name}({base}, total=False):"
    for entry in declared(settings).values():
        if entry.keyword in without or entry.option.typed == "":
            continue
        for keyword in (entry.keyword, *entry.option.aliases):
            yield f"    {keyword}: {_type(entry, hints[entry.keyword])}"
            sentence = entry.option.sentence if keyword == entry.keyword else f"As {entry.keyword}."
            yield from textwrap.wrap(
                f'"""{sentence}"""', 116, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
            )
    yield ""


def _type(entry: Declared, hint: typing.Any) -> str:
    if entry.option.typed is not None:
        return entry.option.typed
    members = [member for member in typing.get_args(hint) or (hint,) if member is not type(None)]
    plain = hint if hint in _PLAIN else members[0]
    if entry.option.choices:
        text = "Literal[" + ", ".join(f'"{choice}"' for choice in entry.option.choices) + "]"
    else:
        text = _PLAIN[plain]
    return f"{text} | None" if entry.may_be_none else text


if __name__ == "__main__":
    sys.stdout.write(module())
