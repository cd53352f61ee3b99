"""How a record is printed: by a format string such as '{offset} {key}: {value}', as JSON, or as suits a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from semel.cli.failures import WrongCall
from semel.cli.output import json_bytes, json_text, printable, time_text

if TYPE_CHECKING:
    from semel.client.values import Message

Piece = Callable[["Message"], bytes]
Render = Callable[["Message"], bytes]

FIELDS = {
    "topic": "name of the topic",
    "partition": "number of the partition",
    "offset": "offset of the record",
    "time": "when it was written, in ISO 8601",
    "timestamp": "the same in milliseconds since 1970",
    "key": "the key; nothing if there is none",
    "value": "the value; nothing if there is none",
    "headers": "all headers, name=value, with commas",
    "header:NAME": "the value of one header",
}
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|\\(x[0-9a-fA-F]{2}|.)|[{}]|\\", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def render_format(text: str, *, is_terminal: bool) -> Render:
    """A line for each record, of `text` with its {fields} and escapes (\\t, \\n, \\0, \\x1f) replaced.

    In a pipe bytes stay as they are; on a terminal what would control it is spelled out.
    """
    pieces: list[Piece | bytes] = []
    end = 0
    for token in _TOKEN.finditer(text):
        pieces.append(text[end : token.start()].encode())
        pieces.append(_piece(token, text, harmless if is_terminal else _unchanged))
        end = token.end()
    pieces.append(text[end:].encode())
    kept = [piece for piece in pieces if piece]

    def render(message: Message) -> bytes:
        return b"".join(piece if isinstance(piece, bytes) else piece(message) for piece in kept) + b"\n"

    return render


def _piece(token: re.Match[str], text: str, clean: Callable[[bytes], bytes]) -> Piece | bytes:
    if token[0] in ("{{", "}}"):
        return token[0][0].encode()
    if token[2] is not None:
        escape = token[2]
        if escape.startswith("x") and len(escape) == 3:
            return bytes([int(escape[1:], 16)])
        if escape in _ESCAPES:
            return _ESCAPES[escape]
    elif token[1] is not None:
        field = _field(token[1], clean)
        if field is not None:
            return field
        known = ", ".join(f"{{{name}}}" for name in FIELDS)
        raise WrongCall(f"--format {text!r}: {token[0]} is unknown; known are {known}")
    raise WrongCall(f"--format {text!r}: {token[0]!r} alone means nothing; to print it, write it twice")


def _field(name: str, clean: Callable[[bytes], bytes]) -> Piece | None:
    if name in ("topic", "partition", "offset"):
        return lambda message: str(getattr(message, name)).encode()
    if name == "timestamp":
        return lambda message: str(message.timestamp_ms).encode()
    if name == "time":
        return lambda message: time_text(message.timestamp_ms).encode()
    if name in ("key", "value"):
        return lambda message: clean(getattr(message, name) or b"")
    if name == "headers":
        return lambda message: b",".join(
            clean(key.encode()) + b"=" + clean(value or b"") for key, value in message.headers
        )
    if name.startswith("header:"):
        wanted = name.removeprefix("header:")
        return lambda message: next((clean(value or b"") for key, value in message.headers if key == wanted), b"")
    return None


def render_json(message: Message) -> bytes:
    """One line; `semel produce --input json` takes it."""
    return json_text(record_document(message)).encode() + b"\n"


def record_document(message: Message) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp_ms": message.timestamp_ms,
        "key": json_bytes(message.key),
        "value": json_bytes(message.value),
        "headers": [[name, json_bytes(value)] for name, value in message.headers],
    }


def render_for_terminal(paint: Callable[[str, str], str], *, with_topic: bool) -> Render:
    """Place, key and value, told apart by colours."""

    def render(message: Message) -> bytes:
        place = f"{message.partition}@{message.offset}"
        shown = [paint(f"{message.topic}/{place}" if with_topic else place, "dim")]
        if message.key is not None:
            shown.append(paint(harmless(message.key).decode(), "cyan"))
        shown.append(paint("null", "dim") if message.value is None else harmless(message.value).decode())
        return "  ".join(shown).encode() + b"\n"

    return render


def harmless(value: bytes) -> bytes:
    """What may be sent to a terminal: lines and tabs as they are, other control characters spelled out."""
    text = value.decode(errors="backslashreplace")
    if text.isprintable():
        return text.encode()
    return "".join(char if char in "\n\t" else printable(char) for char in text).encode()


def _unchanged(value: bytes) -> bytes:
    return value
