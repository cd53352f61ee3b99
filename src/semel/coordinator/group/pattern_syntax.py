"""From the text of a pattern to an automaton: RE2's syntax, as far as names need it (Thompson's construction)."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable

# The printable characters of ASCII, and one that stands for all others.
OTHER = "\U0010ffff"
ALPHABET = "".join(map(chr, range(32, 127))) + OTHER
MOST_CHARACTERS = 1024
_MOST_STATES = 2000
_MOST_REPEATS = 1000

_ALL = (1 << len(ALPHABET)) - 1


def _set_of(characters: Iterable[str]) -> int:
    wanted = set(characters)
    return sum(1 << index for index, character in enumerate(ALPHABET) if character in wanted)


_CLASSES = {
    "d": _set_of(string.digits),
    "w": _set_of(string.ascii_letters + string.digits + "_"),
    "s": _set_of(" "),
}
_POSIX = {
    "alpha": _set_of(string.ascii_letters),
    "digit": _set_of(string.digits),
    "alnum": _set_of(string.ascii_letters + string.digits),
    "upper": _set_of(string.ascii_uppercase),
    "lower": _set_of(string.ascii_lowercase),
    "punct": _set_of(string.punctuation),
    "word": _set_of(string.ascii_letters + string.digits + "_"),
    "xdigit": _set_of(string.hexdigits),
    "graph": _ALL & ~_set_of(" " + OTHER),
    "print": _ALL & ~_set_of(OTHER),
    "ascii": _ALL & ~_set_of(OTHER),
    "space": _set_of(" "),
    "blank": _set_of(" "),
    "cntrl": 0,
}
# (?i) and (?i:...). s, m and U make no difference to a whole name.
_FLAGS = re.compile(r"\(\?([imsU]*)((?:-[imsU]+)?)([:)])")
# Whatever is escaped, or everything between \\Q and \\E.
_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|\Z)|\\.", re.DOTALL)
_CONTROL = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}


class BadPattern(ValueError):
    """The text is no pattern, or one that is not served."""


class Automaton:
    """States by number. A state reads one of its characters and goes to its target, or moves without reading."""

    def __init__(self) -> None:
        self.characters: list[int] = []
        self.target: list[int] = []
        self.moves: list[list[tuple[str, int]]] = []
        self.start = 0
        self.final = 0

    def state(self, characters: int = 0, target: int = 0) -> int:
        if len(self.characters) >= _MOST_STATES:
            raise BadPattern(f"the pattern is too large: it would take more than {_MOST_STATES} states")
        self.characters.append(characters)
        self.target.append(target)
        self.moves.append([])
        return len(self.characters) - 1

    def move(self, start: int, end: int, only_at: str = "") -> None:
        self.moves[start].append((only_at, end))

    def closure(self, states: Iterable[int], *, at_begin: bool, at_end: bool) -> set[int]:
        """All states that can be reached without reading, here or at the beginning or end of the name."""
        allowed = {""} | ({"^"} if at_begin else set()) | ({"$"} if at_end else set())
        reached = set(states)
        waiting = list(reached)
        while waiting:
            for only_at, end in self.moves[waiting.pop()]:
                if only_at in allowed and end not in reached:
                    reached.add(end)
                    waiting.append(end)
        return reached


Piece = tuple[int, int]


def parse(text: str) -> Automaton:
    if len(text) > MOST_CHARACTERS:
        raise BadPattern(f"a pattern has at most {MOST_CHARACTERS} characters, not {len(text)}")
    parser = _Parser(_QUOTED.sub(_unquoted, text))
    start, end = parser.alternatives(ignore_case=False)
    if parser.position < len(parser.text):
        raise BadPattern(f"there is an unexpected {parser.text[parser.position]!r}")
    parser.automaton.start, parser.automaton.final = start, end
    return parser.automaton


class _Parser:
    """Recursive descent. Every piece of automaton has one state where it begins and one where it ends."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.automaton = Automaton()
        self._depth = 0

    def _peek(self, length: int = 1) -> str:
        return self.text[self.position : self.position + length]

    def _take(self, expected: str) -> bool:
        if self._peek(len(expected)) == expected:
            self.position += len(expected)
            return True
        return False

    def _one(self) -> str:
        if self.position >= len(self.text):
            raise BadPattern("the pattern ends too early")
        self.position += 1
        return self.text[self.position - 1]

    def alternatives(self, *, ignore_case: bool) -> Piece:
        self._depth += 1
        if self._depth > 100:
            raise BadPattern("groups are nested too deeply")
        start, end = self.automaton.state(), self.automaton.state()
        while True:
            first, last = self._sequence(ignore_case)
            self.automaton.move(start, first)
            self.automaton.move(last, end)
            if not self._take("|"):
                break
        self._depth -= 1
        return start, end

    def _sequence(self, ignore_case: bool) -> Piece:
        start = end = self.automaton.state()
        while self.position < len(self.text) and self._peek() not in "|)":
            flags = _FLAGS.match(self.text, self.position)
            if flags is not None and flags[3] == ")":
                # They hold to the end of the group that they stand in.
                self.position = flags.end()
                ignore_case = _ignores_case(flags, ignore_case)
                continue
            before = self.position
            first, last = self._atom(ignore_case)
            first, last = self._repeated(first, last, before, ignore_case)
            self.automaton.move(end, first)
            end = last
        return start, end

    def _group(self, ignore_case: bool) -> Piece:
        piece = self.alternatives(ignore_case=ignore_case)
        if not self._take(")"):
            raise BadPattern("a group is not closed")
        return piece

    def _atom(self, ignore_case: bool) -> Piece:
        flags = _FLAGS.match(self.text, self.position)
        if flags is not None:
            self.position = flags.end()
            return self._group(_ignores_case(flags, ignore_case))
        character = self._one()
        if character == "(":
            if self._take("?P<") or self._take("?<"):
                name = ""
                while (part := self._one()) != ">":
                    name += part
                if not name.isidentifier():
                    raise BadPattern(f"{name!r} is no name of a group")
            elif self._peek() == "?":
                raise BadPattern("this kind of group is not understood")
            return self._group(ignore_case)
        if character in "^$":
            return self._only_at(character)
        if character == ".":
            return self._reading(_ALL)
        if character == "[":
            return self._reading(self._class(ignore_case))
        if character in "*+?":
            raise BadPattern(f"there is nothing that {character!r} could repeat")
        if character == "\\":
            return self._escaped(ignore_case)
        return self._reading(_letter(character, ignore_case))

    def _only_at(self, place: str) -> Piece:
        start, end = self.automaton.state(), self.automaton.state()
        self.automaton.move(start, end, place)
        return start, end

    def _reading(self, characters: int) -> Piece:
        """A set of no character at all leads nowhere."""
        end = self.automaton.state()
        return self.automaton.state(characters, end), end

    def _escaped(self, ignore_case: bool) -> Piece:
        character = self._one()
        if character in "Az":
            return self._only_at("^" if character == "A" else "$")
        return self._reading(self._escaped_set(character, ignore_case))

    def _escaped_set(self, character: str, ignore_case: bool) -> int:
        if character.lower() in _CLASSES:
            characters = _CLASSES[character.lower()]
            return _ALL & ~characters if character.isupper() else characters
        return _letter(self._escaped_letter(character), ignore_case)

    def _escaped_letter(self, character: str) -> str:
        if character in _CONTROL:
            return _CONTROL[character]
        if character == "x":
            digits = ""
            if self._take("{"):
                while (digit := self._one()) != "}":
                    digits += digit
            else:
                digits = self._one() + self._one()
            try:
                return chr(int(digits, 16))
            except (ValueError, OverflowError):
                raise BadPattern(f"{digits!r} is no character") from None
        if character.isascii() and character.isalnum():
            raise BadPattern(f"\\{character} is not understood")
        return character

    def _class(self, ignore_case: bool) -> int:
        negated = self._take("^")
        characters = 0
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            if self._take("[:"):
                characters |= self._posix()
                continue
            first = self._one()
            if first == "\\":
                first = self._one()
                if first.lower() in _CLASSES:
                    characters |= self._escaped_set(first, ignore_case)
                    continue
                first = self._escaped_letter(first)
            last = first
            if self._peek() == "-" and self._peek(2) not in ("-]", "-"):
                self.position += 1
                last = self._one()
                if last == "\\":
                    last = self._escaped_letter(self._one())
                if last < first:
                    raise BadPattern(f"{first}-{last} is no range")
            for member in ALPHABET:
                folded = {member, member.swapcase()} if ignore_case else {member}
                if any(first <= one <= last for one in folded):
                    characters |= _set_of(member)
        self.position += 1
        return _ALL & ~characters if negated else characters

    def _posix(self) -> int:
        negated = self._take("^")
        name = ""
        while not self._take(":]"):
            name += self._one()
        if name not in _POSIX:
            raise BadPattern(f"[:{name}:] is not known")
        return _ALL & ~_POSIX[name] if negated else _POSIX[name]

    # -- repeating

    def _repeated(self, first: int, last: int, before: int, ignore_case: bool) -> Piece:
        """*, +, ?, {n}, {n,}, {n,m}, each with or without the ? that prefers fewer, which a whole match cannot see."""
        after = self.position
        if self._take("*"):
            least, most = 0, None
        elif self._take("+"):
            least, most = 1, None
        elif self._take("?"):
            least, most = 0, 1
        else:
            counts = self._counts()
            if counts is None:
                return first, last
            least, most = counts
        self._take("?")
        end_of_repeat = self.position
        if (self._peek() and self._peek() in "*+?") or self._counts() is not None:
            raise BadPattern("a repetition cannot be repeated without a group")
        copies = [(first, last)]
        for _ in range((max(least, 1) if most is None else max(most, 1)) - 1):
            # The same text again makes the same piece again.
            self.position = before
            copies.append(self._atom(ignore_case))
            if self.position != after:
                raise BadPattern("a repetition is not understood")
        self.position = end_of_repeat
        return self._chain(copies, least, most)

    def _counts(self) -> tuple[int, int | None] | None:
        """{ stands for itself unless numbers follow."""
        end = self.text.find("}", self.position)
        if self._peek() != "{" or end < 0:
            return None
        low, comma, high = self.text[self.position + 1 : end].partition(",")
        if not low.isdigit() or (high and not high.isdigit()):
            return None
        self.position = end + 1
        least, most = int(low), int(high) if high else (None if comma else int(low))
        if max(least, most or 0) > _MOST_REPEATS or (most is not None and most < least):
            raise BadPattern(f"{{{low}{comma}{high}}} repeats too often, or less than at least")
        return least, most

    def _chain(self, copies: list[Piece], least: int, most: int | None) -> Piece:
        automaton = self.automaton
        start, end = automaton.state(), automaton.state()
        place = start
        for number, (first, last) in enumerate(copies):
            if number >= least:
                automaton.move(place, end)
            if most != 0:
                automaton.move(place, first)
                place = last
        automaton.move(place, end)
        if most is None:
            automaton.move(copies[-1][1], copies[-1][0])
        return start, end


def _unquoted(found: re.Match[str]) -> str:
    """What is between \\Q and \\E, character by character escaped."""
    quoted: str | None = found[1]
    if quoted is None:
        return found[0]
    return "".join(character if character.isalnum() else f"\\{character}" for character in quoted)


def _ignores_case(flags: re.Match[str], before: bool) -> bool:
    return ("i" in flags[1] or before) and "i" not in flags[2]


def _letter(character: str, ignore_case: bool) -> int:
    return _set_of({character, character.swapcase()} if ignore_case else {character})
