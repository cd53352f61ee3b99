"""The fenced blocks of a Markdown page, and the commands in those that are consoles."""

from __future__ import annotations

from typing import NamedTuple


class Block(NamedTuple):
    language: str
    text: str
    line: int


class Command(NamedTuple):
    """`shown` is what the page says that it prints; lines of `...` stand for any."""

    text: str
    shown: tuple[str, ...]
    line: int


def blocks(page: str) -> list[Block]:
    found: list[Block] = []
    language, inside, start = None, list[str](), 0
    for number, line in enumerate(page.splitlines(), 1):
        if not line.startswith("```"):
            inside.append(line)
        elif language is None:
            language, inside, start = line[3:], [], number + 1
        else:
            found.append(Block(language, "\n".join(inside) + "\n", start))
            language = None
    return found


def commands(block: Block) -> list[Command]:
    found: list[Command] = []
    for number, line in enumerate(block.text.splitlines(), block.line):
        if line.startswith("$ "):
            text = line[2:].partition("  # ")[0].strip()
            found.append(Command(text, (), number))
        elif found:
            found[-1] = found[-1]._replace(shown=(*found[-1].shown, line))
    return found
