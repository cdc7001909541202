"""An independent reading of ListOps: recursive, from text, with Python's own statistics."""

import statistics
from collections.abc import Iterator

OPERATORS = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda arguments: int(statistics.median(arguments)),
    "[SM": lambda arguments: sum(arguments) % 10,
}


def parse(text: str):
    """A digit as an int, or (operator, list of arguments)."""
    symbols = iter(text.split())
    tree = _parse(next(symbols), symbols)
    assert next(symbols, None) is None
    return tree


def _parse(symbol: str, rest: Iterator[str]):
    if symbol not in OPERATORS:
        return int(symbol)
    arguments = []
    while (following := next(rest)) != "]":
        arguments.append(_parse(following, rest))
    return symbol, arguments


def value(tree) -> int:
    if isinstance(tree, int):
        return tree
    operator, arguments = tree
    return OPERATORS[operator]([value(argument) for argument in arguments])


def text(tree) -> str:
    if isinstance(tree, int):
        return str(tree)
    operator, arguments = tree
    return " ".join([operator, *map(text, arguments), "]"])


def depth(tree) -> int:
    return 1 if isinstance(tree, int) else 1 + max(map(depth, tree[1]))


def binary(tree) -> str:
    """The rendering of the released files: an operator takes its arguments one by one."""
    if isinstance(tree, int):
        return str(tree)
    operator, arguments = tree
    rendered = operator
    for argument in arguments:
        rendered = f"( {rendered} {binary(argument)} )"
    return f"( {rendered} ] )"
