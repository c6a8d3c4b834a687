"""Mutants of a source file: each differs from it in one expression or one statement.

Not changed are annotations, decorators, docstrings, f-strings, what stands below `if TYPE_CHECKING`, and whether `zip`
is strict: a change there has no effect on what a program computes. `return False` does not become `return None`, which
hardly any caller can tell from it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_ANNOTATED = frozenset({"annotation", "returns", "decorator_list"})
_SKIPPED = (ast.JoinedStr, ast.Import, ast.ImportFrom)
_UNCHANGED_KEYWORD = "strict"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A source file with one change.

    Args:
        file: Path of the file, relative to the root of the project.
        line: Line of the change.
        where: Qualified name of the function or class that is changed; empty for the module.
        change: Old and new code; if a function has the same change twice, the second one ends in "#2".
        start: Offset of the replaced bytes.
        end: Offset after them.
        text: The bytes in their place.
    """

    file: str
    line: int
    where: str
    change: str
    start: int
    end: int
    text: bytes

    def apply(self, source: bytes) -> bytes:
        """Return the file with the change."""
        return source[: self.start] + self.text + source[self.end :]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.where}: {self.change}"


def mutants(file: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a file, in the order of the source.

    Args:
        file: Path that the mutants have.
        source: Content, in UTF-8.
    """
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    found: list[Mutant] = []
    seen: Counter[tuple[str, str]] = Counter()
    for where, node, new, text in _changes(ast.parse(source), ""):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        change = f"{_short(node)} -> {new}"
        seen[where, change] += 1
        if seen[where, change] > 1:
            change += f" #{seen[where, change]}"
        start, end = lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset
        found.append(Mutant(file, node.lineno, where, change, start, end, text.encode()))
    return found


def _short(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


Node = ast.expr | ast.stmt
Change = tuple[str, Node, str, str]
"""Where it is, what is replaced, the new code to show, and the new code."""


def _changes(node: ast.AST, where: str) -> Iterator[Change]:
    if isinstance(node, _SKIPPED) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
        return
    if isinstance(node, ast.keyword) and node.arg == _UNCHANGED_KEYWORD:
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        where = f"{where}.{node.name}" if where else node.name
    if isinstance(node, ast.expr):
        for new in _expressions(node):
            yield where, node, _short(new), f"({ast.unparse(new)})"
    elif isinstance(node, ast.stmt):
        for shown in _statements(node):
            yield where, node, shown, shown
    for condition in _conditions(node):
        negated = f"not ({_short(condition)})"
        yield where, condition, negated, f"({negated})"
    for name, value in ast.iter_fields(node):
        if name in _ANNOTATED:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _changes(child, where)


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for other in _COMPARISONS[type(operator)]:
                ops = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                yield ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield from (ast.Constant(node.value + 1), ast.Constant(node.value - 1))


def _conditions(node: ast.AST) -> list[ast.expr]:
    """Return the conditions to negate; a comparison of one pair and `not` have changes of their own."""
    tests = [node.test] if isinstance(node, ast.If | ast.While | ast.IfExp) else []
    tests += node.ifs if isinstance(node, ast.comprehension) else []
    return [test for test in tests if not isinstance(test, ast.Compare | ast.UnaryOp | ast.Constant)]


def _statements(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Break):
        yield "continue"
    elif isinstance(node, ast.Continue):
        yield from ("break", "pass")
    elif isinstance(node, ast.Return):
        if node.value is None:
            yield "pass"
        elif not (isinstance(node.value, ast.Constant) and (node.value.value is None or node.value.value is False)):
            yield "return None"
    elif _can_be_left_out(node):
        yield "pass"


def _can_be_left_out(node: ast.stmt) -> bool:
    """Return whether the module still has all its names without a statement."""
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant | ast.Yield | ast.YieldFrom)
    if isinstance(node, ast.Assign):
        return not any(isinstance(target, ast.Name | ast.Tuple) for target in node.targets)
    return isinstance(node, ast.Raise | ast.AugAssign | ast.Delete)
