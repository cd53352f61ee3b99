"""Patterns for names of topics (KIP-848) and transactional ids, in RE2's syntax, in time that none can blow up.

A pattern becomes a nondeterministic automaton of bounded size, run as a set of states, and the sets that occur are
remembered; nothing ever backtracks. The whole name must match. Characters beyond printable ASCII, which no topic name
has, are not told apart: they match `.` and what is negated. Not understood, and refused: Unicode classes (\\p), word
boundaries (\\b), \\C. As in RE2 there are no back-references and no lookaround.
"""

from __future__ import annotations

from collections.abc import Generator

from semel.coordinator.group.pattern_syntax import ALPHABET, OTHER, Automaton, BadPattern, parse

__all__ = ["BadPattern", "TopicPattern"]

_INDEX = {character: index for index, character in enumerate(ALPHABET)}
# What is remembered of one pattern before it is begun anew.
_MOST_NODES = 2000
# States looked at before the loop has its turn: about a millisecond.
_WORK_AT_ONCE = 2000


class _Node:
    """A set of states of the automaton: where each character leads, and whether the name may end here."""

    __slots__ = ("accepts", "next", "reading")

    def __init__(self, reading: list[int], accepts: bool) -> None:
        self.reading = reading
        self.accepts = accepts
        self.next: dict[str, _Node] = {}


class TopicPattern:
    """A compiled pattern. Raises BadPattern."""

    def __init__(self, text: str) -> None:
        self._automaton: Automaton = parse(text)
        self._nodes: dict[frozenset[int], _Node] = {}
        self._start = self._node(frozenset([self._automaton.start]), at_begin=True)

    def _node(self, states: frozenset[int], *, at_begin: bool = False) -> _Node:
        automaton = self._automaton
        here = automaton.closure(states, at_begin=at_begin, at_end=False)
        at_end = automaton.closure(states, at_begin=at_begin, at_end=True)
        return _Node([state for state in here if automaton.characters[state]], automaton.final in at_end)

    def matches(self, name: str) -> bool:
        walk = self.walk(name)
        while True:
            try:
                next(walk)
            except StopIteration as end:
                return bool(end.value)

    def walk(self, name: str) -> Generator[None, None, bool]:
        """Whether a name matches; gives way now and then when the pattern makes that much work."""
        node = self._start
        work = 0
        for character in name:
            following = node.next.get(character)
            if following is None:
                work += len(node.reading)
                following = node.next[character] = self._step(node, character)
                if work > _WORK_AT_ONCE:
                    work = 0
                    yield
            node = following
            if not node.reading and not node.accepts:
                return False
        return node.accepts

    def _step(self, node: _Node, character: str) -> _Node:
        automaton = self._automaton
        bit = 1 << _INDEX.get(character, _INDEX[OTHER])
        states = frozenset(automaton.target[state] for state in node.reading if automaton.characters[state] & bit)
        found = self._nodes.get(states)
        if found is None:
            if len(self._nodes) >= _MOST_NODES:
                self._nodes.clear()
                self._start.next.clear()
            found = self._nodes[states] = self._node(states)
        return found
