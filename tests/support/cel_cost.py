"""What a rule in CEL may cost at most, counted as the API server does but never lower.

Kubernetes estimates a rule before it takes a definition, from its text and the bounds of the schema: each step costs
1, what reads a text 1 for each 10 characters, a regular expression a quarter of its length times that, and a loop as
often as its list may be long. Here a loop runs over the longest list in reach and a text is the longest in reach,
unless the other side of the comparison is written in the rule.
"""

from typing import Any

import celpy
from lark import Token, Tree
from support.structural_schema import cardinality, schemas

RULE_LIMIT = 10_000_000
DEFINITION_LIMIT = 100_000_000
_REQUEST_BYTES = 3 * 1024 * 1024
_LOOPS = frozenset({"all", "exists", "exists_one", "map", "filter"})
_READS = frozenset({"relation", "member_dot_arg", "addition"})


def costs(whole: dict[str, Any]) -> dict[str, int]:
    """`path: rule` -> its cost in one object."""
    found: dict[str, int] = {}
    for path, schema in schemas(whole):
        for each in schema.get("x-kubernetes-validations", ()):
            one = _Rule(schema, is_root=not path).cost(celpy.Environment().compile(each["rule"]))
            found[f"{path}: {each['rule']}"] = round(one * cardinality(whole, path))
    return found


class _Rule:
    def __init__(self, schema: dict[str, Any], *, is_root: bool) -> None:
        inside = [inner for _, inner in schemas(schema)]
        self._loop = max((each.get("maxItems", 0) for each in inside), default=0)
        self._text = _REQUEST_BYTES if is_root else max(each.get("maxLength", 0) for each in [{}, *inside])

    def cost(self, node: Tree[Token] | Token) -> float:
        if not isinstance(node, Tree):
            return 0.0
        inner = sum(self.cost(each) for each in node.children)
        name = str(node.children[1]) if node.data == "member_dot_arg" else ""
        if name in _LOOPS:
            return self._loop * (inner + 3) + 1
        if node.data not in _READS or len(node.children) < 2:
            return inner + 1
        written = [len(str(token)) for token in _texts(node)]
        if name == "matches":
            return inner + 1 + (1 + self._text * 0.1) * max(1.0, written[0] * 0.25)
        return inner + 1 + 0.1 * (min(written) if written else self._text)


def _texts(node: Tree[Token]) -> list[Token]:
    """Texts that are written on a side of it, not deeper than it goes without another comparison."""
    return list(node.scan_values(lambda each: each.type in {"STRING_LIT", "MLSTRING_LIT"}))
