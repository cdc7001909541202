"""ListOps language: symbols, their ids, and the evaluation of expressions.

An expression is a digit, or an operator `[OP`, one or more expressions and `]`
(Nangia and Bowman, 2018, arXiv 1804.06028): `[MAX 2 9 [MIN 4 7 ] 0 ]` is 9. Every value is a digit.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from lra.data.compiled import compiled

# Symbols in the order of their ids, which start at 1: 0 is padding.
VOCABULARY = ("[MIN", "[MAX", "[MED", "[SM", "]", *"0123456789")
CLOSE = 5
FIRST_DIGIT = 6
_MIN, _MAX, _MED = 1, 2, 3  # the remaining operator is SM

_IDS = {symbol: index for index, symbol in enumerate(VOCABULARY, start=1)}

# Error codes that `_value` returns in place of a value.
_UNKNOWN, _UNOPENED, _EMPTY, _TRAILING, _UNCLOSED, _NOTHING = -1, -2, -3, -4, -5, -6
_REASONS = {
    _UNKNOWN: "unknown id {token}",
    _UNOPENED: "']' closes no operator",
    _EMPTY: "operator without arguments",
    _TRAILING: "the expression ended before this",
    _UNCLOSED: "{depth} missing ']'",
    _NOTHING: "no expression",
}


def encode(text: str) -> np.ndarray:
    """Convert an expression, with symbols separated by spaces, to ids, uint8 [length].

    Raises:
        ValueError: A symbol is not in `VOCABULARY`. The message has its position.
    """
    return _to_ids(text.split())


def decode(ids: Iterable[int]) -> str:
    """Convert ids to an expression with symbols separated by spaces.

    Raises:
        ValueError: An id is not in 1 to 15.
    """
    ids = list(ids)
    for position, index in enumerate(ids):
        if not 1 <= index <= len(VOCABULARY):
            raise ValueError(f"position {position}: unknown id {index}")
    return " ".join(VOCABULARY[index - 1] for index in ids)


def evaluate(tokens: bytes | str | Sequence[int] | Sequence[str] | np.ndarray) -> int:
    """Evaluate an expression of any depth; return its value, 0 to 9.

    The operators are MIN; MAX; MED, the median (for an even number of arguments, the mean of the
    middle two rounded down); and SM, the sum modulo 10.

    Args:
        tokens: Ids, symbols, or a string of symbols separated by spaces.

    Raises:
        ValueError: The expression is malformed. The message has the position (from 0) of the first
            wrong token.
    """
    if isinstance(tokens, str):
        tokens = tokens.split()
    if isinstance(tokens, bytes):
        ids = np.frombuffer(tokens, np.uint8)
    elif len(tokens) and isinstance(tokens[0], str):
        ids = _to_ids(tokens)
    else:
        ids = np.asarray(tokens)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise ValueError("an expression is one sequence of integers or of symbols")
    value, position, depth = _value(ids.astype(np.int64))
    if value < 0:
        token = ids[position] if position < len(ids) else None
        reason = _REASONS[value].format(token=token, depth=depth)
        raise ValueError(f"position {position}: {reason}")
    return value


def _to_ids(symbols: Sequence[str]) -> np.ndarray:
    try:
        return np.array([_IDS[symbol] for symbol in symbols], np.uint8)
    except (KeyError, TypeError):
        position = next(i for i, symbol in enumerate(symbols) if symbol not in _IDS)
        raise ValueError(f"position {position}: unknown symbol {symbols[position]!r}") from None


@compiled
def _value(ids):
    """Evaluate ids, int64 [length]; return (value or key of _REASONS, position, open operators)."""
    values = np.empty(len(ids), np.int64)  # values of finished arguments
    # Index in `values` of each open operator's first argument.
    starts = np.empty(len(ids), np.int64)
    operators = np.empty(len(ids), np.int64)
    count = depth = 0
    for position in range(len(ids)):
        token = ids[position]
        if token < 1 or token >= FIRST_DIGIT + 10:
            return _UNKNOWN, position, depth
        if token == CLOSE and depth == 0:
            return _UNOPENED, position, depth
        if count > 0 and depth == 0:
            return _TRAILING, position, depth
        if token < CLOSE:
            operators[depth], starts[depth] = token, count
            depth += 1
        elif token == CLOSE:
            depth -= 1
            start = starts[depth]
            if start == count:
                return _EMPTY, position, depth
            values[start] = _apply(operators[depth], values[start:count])
            count = start + 1
        else:
            values[count] = token - FIRST_DIGIT
            count += 1
    if depth > 0:
        return _UNCLOSED, len(ids), depth
    if count == 0:
        return _NOTHING, 0, depth
    return values[0], 0, depth


@compiled
def _apply(operator, values):
    """Apply an operator to its arguments, int64 [arity]."""
    if operator == _MIN:
        return values.min()
    if operator == _MAX:
        return values.max()
    if operator == _MED:
        last = len(values) - 1
        return (_ranked(values, last // 2) + _ranked(values, last - last // 2)) // 2
    return values.sum() % 10


@compiled
def _ranked(values, rank):
    """Return the element at index `rank` of the sorted values, which are digits."""
    for digit in range(10):
        for value in values:
            rank -= value == digit
        if rank < 0:
            return digit
    return 9
