"""Generate ListOps expressions with the distribution of LRA's generator (arXiv 2011.04006).

A node at depth d < `max_depth` (the root has depth 1) is an operator with probability 1/4 and a
digit otherwise; at `max_depth` it is always a digit. The number of arguments of an operator is
uniform in 2 to `max_args`; the four operators are equally likely, as are the ten digits.
Expressions with min_length < length < max_length are kept (the length counts digits plus two per
operator), and duplicates are dropped.

Random numbers are the raw output of the counter-based generator Philox, keyed by (seed, block of
attempts), and every decision is made on integers. The expressions therefore depend only on the
seed, not on the machine, the version of NumPy or the number of threads.
"""

import hashlib
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lra.data.compiled import compiled, in_threads
from lra.data.listops_language import CLOSE, FIRST_DIGIT
from lra.errors import UserError

ATTEMPTS_PER_BLOCK = 4096
# After this many blocks without a new expression, there are no or hardly any more.
FRUITLESS_BLOCKS = 256

_WORDS_AT_ONCE = 1 << 16
# Return values of `_next` in place of a length.
_REJECTED, _OUT_OF_WORDS = 0, -1
MOST_TOKENS = 100_000


class Rules(NamedTuple):
    """Rules of generation; the defaults are LRA's, and both length bounds are exclusive."""

    min_length: int = 500
    max_length: int = 2000
    max_depth: int = 10
    max_args: int = 10

    def check(self) -> None:
        """Raise UserError for rules that are invalid or that no expression satisfies."""
        if self.min_length < 0:
            raise UserError(f"--min_length={self.min_length} is negative")
        if self.max_length - self.min_length < 2:
            raise UserError(
                f"no length lies between --min_length={self.min_length} and "
                f"--max_length={self.max_length} (both exclusive)"
            )
        for name, lowest, highest in (
            ("max_length", 2, MOST_TOKENS),
            ("max_depth", 1, 1000),
            ("max_args", 2, 1000),
        ):
            value = getattr(self, name)
            if not lowest <= value <= highest:
                raise UserError(f"--{name}={value} is not in {lowest} to {highest:,}")


def expressions(rules: Rules, seed: int, workers: int = 1) -> Iterator[bytes]:
    """Yield distinct expressions, one byte per id, without end, independently of `workers`.

    Raises:
        UserError: The rules are invalid, or no new expression can be found.
    """
    rules.check()
    seen: set[bytes] = set()
    fruitless = 0
    calls = ((rules, seed, block) for block in itertools.count())
    for block in in_threads(block_of_expressions, calls, workers):
        before = len(seen)
        for expression in block:
            digest = hashlib.blake2b(expression, digest_size=16).digest()
            if digest not in seen:
                seen.add(digest)
                yield expression
        fruitless = 0 if len(seen) > before else fruitless + 1
        if fruitless == FRUITLESS_BLOCKS:
            raise UserError(
                f"{fruitless * ATTEMPTS_PER_BLOCK:,} attempts gave no expression beyond the "
                f"{len(seen):,} found; widen --min_length and --max_length, raise --max_depth or "
                "ask for fewer"
            )


def block_of_expressions(rules: Rules, seed: int, block: int) -> list[bytes]:
    """Return the expressions of `ATTEMPTS_PER_BLOCK` attempts, including duplicates."""
    philox = np.random.Philox(key=np.array([seed, block], np.uint64))
    words = np.empty(0, np.uint64)
    tokens = np.empty(rules.max_length, np.uint8)
    accepted = []
    attempts = ATTEMPTS_PER_BLOCK
    while attempts:
        length, used, attempts = _next(words, attempts, rules, tokens)
        words = words[used:]
        if length == _OUT_OF_WORDS:
            words = np.concatenate([words, philox.random_raw(_WORDS_AT_ONCE)])
        elif length != _REJECTED:
            accepted.append(tokens[:length].tobytes())
    return accepted


@compiled
def _next(words, attempts, rules, tokens):
    """Make attempts until one is accepted; return (its length, words used, attempts left).

    If the random words run out, the length is _OUT_OF_WORDS, and the incomplete attempt counts
    neither as used words nor as an attempt.
    """
    used = 0
    while attempts > 0:
        length, end = _attempt(words, used, rules, tokens)
        if length == _OUT_OF_WORDS:
            return length, used, attempts
        used = end
        attempts -= 1
        if length != _REJECTED:
            return length, used, attempts
    return _REJECTED, used, attempts


@compiled
def _attempt(words, position, rules, tokens):
    """Write a random expression to `tokens`; return (length, position of the first unused word)."""
    min_length, max_length, max_depth, max_args = rules
    # Below this bound all remainders modulo 10 and modulo max_args - 1 are equally likely.
    bound = (1 << 32) - (1 << 32) % (10 * (max_args - 1))
    # Missing arguments of each open operator.
    missing = np.empty(min(max_depth, max_length) + 1, np.int64)
    depth = written = 0
    min_size = 1  # length of the shortest possible completion
    while position < len(words):
        word = words[position]
        position += 1
        choice = np.int64(word >> np.uint64(32))
        if choice >= bound:
            continue
        if depth + 1 < max_depth and word & np.uint64(3) == 0:
            arity = 2 + choice % (max_args - 1)
            min_size += arity + 1
            if min_size >= max_length:
                return _REJECTED, position
            tokens[written] = 1 + ((word >> np.uint64(2)) & np.uint64(3))
            written += 1
            missing[depth] = arity
            depth += 1
            continue
        tokens[written] = FIRST_DIGIT + choice % 10
        written += 1
        while depth > 0:
            missing[depth - 1] -= 1
            if missing[depth - 1] > 0:
                break
            tokens[written] = CLOSE
            written += 1
            depth -= 1
        if depth == 0:
            return (written if written > min_length else _REJECTED), position
    return _OUT_OF_WORDS, position
