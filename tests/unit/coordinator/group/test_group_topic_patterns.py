"""Patterns for topic names: RE2's syntax, a whole match, and no pattern that takes long."""

from __future__ import annotations

import time

import pytest

from semel.coordinator.group.pattern_syntax import BadPattern
from semel.coordinator.group.topic_patterns import TopicPattern


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("orders", ["orders"], ["orders2", "order", "xorders", "Orders"]),
        ("orders-.*", ["orders-", "orders-eu"], ["orders", "my-orders-eu"]),
        ("^orders$", ["orders"], ["orders1"]),
        (r"\Aorders\z", ["orders"], ["orders1"]),
        ("^^a$$", ["a"], ["aa"]),
        ("a^b", [], ["ab", "a", "b"]),
        ("(^a|b)c", ["ac", "bc"], ["abc"]),
        ("a|b|", ["a", "b"], ["ab", "c"]),
        ("(orders|bills)-(eu|us)", ["orders-eu", "bills-us"], ["orders", "orders-"]),
        ("(?:a|b)+", ["a", "abba"], ["", "abc"]),
        ("(?P<name>ab)c", ["abc"], ["ab"]),
        ("(?<name>ab)c", ["abc"], ["ab"]),
        ("a*b+c?", ["b", "aabbc"], ["a", "ac", "bcc"]),
        ("a*?b+?c??", ["b", "aabbc"], ["a"]),
        ("a{3}", ["aaa"], ["aa", "aaaa"]),
        ("a{2,}", ["aa", "aaaaa"], ["a"]),
        ("a{1,3}b", ["ab", "aaab"], ["b", "aaaab"]),
        ("(ab){2}", ["abab"], ["ab", "ababab"]),
        ("a{0}b", ["b"], ["ab"]),
        ("[abc]x", ["ax", "cx"], ["dx"]),
        ("[^abc]x", ["dx", "-x"], ["ax"]),
        ("[a-c1-3._-]+", ["a2._-"], ["d", "4"]),
        ("[]a]", ["a"], ["b"]),
        ("[a-]", ["a", "-"], ["b"]),
        (r"[\d_]+", ["12_"], ["a"]),
        (r"[\w]+", ["a_1"], ["a-1"]),
        ("[[:alpha:]]+", ["aZ"], ["a1"]),
        ("[[:^digit:]]+", ["a-"], ["1"]),
        (r"\d+\.\d+", ["1.2"], ["1-2", "12"]),
        (r"\D\W\S\w", ["a-b_"], ["1-bc", "aabc"]),
        ("a.c", ["abc", "a.c"], ["ac"]),
        (r"a\.c", ["a.c"], ["abc"]),
        (r"\x61\x{62}", ["ab"], ["aa"]),
        (r"\Qa.c\E+", ["a.c", "a.ccc"], ["abc"]),
        ("(?i)Orders", ["orders", "ORDERS"], ["order"]),
        ("(?i:A)b", ["ab", "Ab"], ["AB"]),
        ("(?i:ab)+", ["abAB"], ["a"]),
        ("(?i)a(?-i)b", ["Ab"], ["AB"]),
        ("(?s).(?U)a*", ["xa"], [""]),
        ("[A-C]", ["B"], ["b"]),
        ("(?i)[A-C]", ["B", "b"], ["d"]),
        ("a{x}", [], ["a"]),
        ("", [""], ["a"]),
        (r"\s", [], ["a", "-"]),
        ("ä|a", ["a"], ["ae"]),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = TopicPattern(pattern)
    assert [name for name in [*matching, *others] if compiled.matches(name)] == matching


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "(a",
        "[a",
        "[z-a]",
        "*a",
        "+",
        "?",
        "a**",
        "a{3}{3}",
        "a{5,2}",
        "a{1001}",
        "(a{100}){100}",
        r"(a)\1",
        "(?=a)",
        "(?!a)",
        "(?<=a)b",
        r"\pL",
        r"\bx",
        r"\C",
        "\\",
        r"\x",
        r"\xzz",
        "[[:nothing:]]",
        "(?P<1>a)",
        "(?x)a",
        "(" * 200 + ")" * 200,
        "a" * 1025,
    ],
)
def test_what_is_no_pattern_or_not_served_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        TopicPattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(a*)*b", "(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*)*(.*)*(.*)*b", "(a?){100}a{100}", "(a|b)*a(a|b){200}", ".*" * 400],
)
def test_no_pattern_takes_long(pattern: str) -> None:
    started = time.process_time()
    compiled = TopicPattern(pattern)
    for name in ("a" * 249, "ab" * 124, "a" * 248 + "-"):
        compiled.matches(name)
    # Each of these takes a backtracking matcher longer than the universe has been there.
    assert time.process_time() - started < 2


def test_a_pattern_that_makes_much_work_gives_way() -> None:
    turns = sum(1 for _ in TopicPattern("(a|b)*a(a|b){200}").walk("ab" * 124))
    assert turns >= 5
    assert not list(TopicPattern("orders-.*").walk("orders-eu"))


def test_what_a_pattern_remembers_is_bounded() -> None:
    compiled = TopicPattern("(a|b)*a(a|b){14}")
    for number in range(4_000):
        compiled.matches(f"{number * 16:016b}".replace("0", "a").replace("1", "b"))
    assert len(compiled._nodes) <= 2000
    assert compiled.matches("b" * 3 + "a" + "b" * 14)
    assert not compiled.matches("b" * 4 + "b" * 14)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        (".*", ["orders/1:a b", "größe", ""], []),
        ("app:[0-9]+", ["app:12"], ["app12", "app:"]),
        ("[^a-z]+", ["ÄÖ", ":"], ["a:"]),
        ("[[:punct:]]", [":", "/"], ["a", "ß", " "]),
        (r"\S+", ["a/ß"], ["a b"]),
    ],
)
def test_names_that_no_topic_may_have_are_matched_too(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = TopicPattern(pattern)
    assert [name for name in matching + others if compiled.matches(name)] == matching
