"""The ways in which code is changed: cosmic-ray's own operators, of those only the near misses, and one more.

A comparison that turns into another order, or an addition into a subtraction, is what a person gets wrong. An addition
that turns into a power dies at the first touch, and `is` for `==` means the same for what we compare.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.operators.provider import OperatorProvider
from parso.python.tree import Keyword
from parso.tree import NodeOrLeaf

ORDERED = ("Eq", "NotEq", "Lt", "LtE", "Gt", "GtE")
NEAR = {
    *((left, right) for left in ORDERED for right in ORDERED if left != right),
    ("Is", "IsNot"),
    ("IsNot", "Is"),
    ("Add", "Sub"),
    ("Sub", "Add"),
    ("Mul", "Add"),
    ("Div", "Mul"),
    ("FloorDiv", "Mul"),
    ("Mod", "FloorDiv"),
    ("RShift", "LShift"),
    ("LShift", "RShift"),
    ("BitOr", "BitAnd"),
    ("BitOr", "BitXor"),
    ("BitAnd", "BitOr"),
    ("BitXor", "BitOr"),
    ("Delete", "Not"),
    ("Delete", "USub"),
}
SINGLE = (
    "AddNot",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ExceptionReplacer",
    "NumberReplacer",
    "ZeroIterationForLoop",
)


class RemoveStatement(Operator):  # type: ignore[misc]
    """Leaves out a statement that is there for its effect: a call, an assignment to a field, `del`, `raise`.

    Assignments to local names are left alone: what reads them would only fail for want of a name.
    """

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        if node.type == "simple_stmt" and _has_effect(node.children[0]):
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: NodeOrLeaf, index: int) -> NodeOrLeaf:
        left_out = node.children[0]
        prefix = left_out.get_first_leaf().prefix
        node.children[0] = Keyword("pass", left_out.start_pos, prefix)
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("self.x = 1\n", "pass\n"), Example("f(1)\n", "pass\n"))


def _has_effect(statement: NodeOrLeaf) -> bool:
    if statement.type in ("del_stmt", "raise_stmt"):
        return True
    if statement.type == "expr_stmt":
        target = statement.children[0]
        is_augmented = getattr(statement.children[1], "type", "") == "operator" and statement.children[1].value != "="
        return is_augmented or (target.type in ("atom_expr", "power") and statement.children[1].type == "operator")
    return statement.type in ("atom_expr", "power", "await_expr")


@cache
def operators() -> dict[str, Operator]:
    """By name; every one is made once, for none of them keeps anything."""
    provider: Any = OperatorProvider()
    found = {name: provider[name]() for name in SINGLE}
    for name in provider:
        parts = name.split("_")
        if len(parts) == 3 and (parts[1], parts[2]) in NEAR:
            found[name] = provider[name]()
    found[RemoveStatement.__name__] = RemoveStatement()
    return found
