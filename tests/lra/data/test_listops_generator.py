import hashlib
import itertools

import numpy as np
import pytest

from lra.data import listops_generator
from lra.data.listops_generator import (
    ATTEMPTS_PER_BLOCK,
    Rules,
    block_of_expressions,
    expressions,
)
from lra.data.listops_language import CLOSE, FIRST_DIGIT, decode, evaluate
from lra.errors import UserError
from tests.lra.data import listops_reference as reference

SHORT = Rules(min_length=15, max_length=65)
BLOCKS = 30
# Standard errors that a measured share or mean may be off: seeds are fixed, so this fails for
# changed rules only.
TOLERANCE = 4
# Of the first 1,000 and 10,000 expressions of seed 0 when this was written.
SHA256_LRA = "4fbf913fe97fc66816195e6d195d6384be5dc64e39cddfc4101594d4c3421619"
SHA256_SHORT = "f2ad988810154c441f1e38f37f2bb8a1b96475813eecfec789f04a3e8ef980a6"


@pytest.fixture(scope="module")
def lra():
    """About 10,000 expressions of LRA's rules."""
    return [tokens for block in range(BLOCKS) for tokens in block_of_expressions(Rules(), 0, block)]


def test_acceptance(lra):
    attempts, expected = BLOCKS * ATTEMPTS_PER_BLOCK, 0.0828  # lra.md 2.1, like all below
    assert len(lra) >= 8000
    error = np.sqrt(expected * (1 - expected) / attempts)
    assert abs(len(lra) / attempts - expected) < TOLERANCE * error


def test_lengths(lra):
    lengths = np.array([len(tokens) for tokens in lra])
    assert lengths.min() == 501
    assert 1990 < lengths.max() < 2000
    assert abs(lengths.mean() - 1035) < TOLERANCE * 394 / np.sqrt(len(lra))
    assert abs(lengths.std() - 394) < 10
    assert abs(np.median(lengths) - 954) < 25


def test_label_frequencies(lra):
    expected = np.array([17.0, 9.1, 7.7, 8.2, 9.2, 8.6, 7.6, 7.1, 8.8, 16.8]) / 100
    labels = [evaluate(tokens) for tokens in lra]
    measured = np.bincount(labels, minlength=10) / len(labels)
    error = np.sqrt(expected * (1 - expected) / len(labels))
    np.testing.assert_array_less(np.abs(measured - expected), TOLERANCE * error)


def test_operators_and_brackets(lra):
    tokens = np.frombuffer(b"".join(lra), np.uint8)
    counts = np.bincount(tokens, minlength=16)
    operators = counts[1:CLOSE]
    assert abs(operators.sum() / len(tokens) - 0.142) < 0.001
    assert counts[CLOSE] == operators.sum()
    np.testing.assert_allclose(operators / operators.sum(), 0.25, atol=0.002)
    digits = counts[FIRST_DIGIT:]
    np.testing.assert_allclose(digits / digits.sum(), 0.1, atol=0.001)


def test_best_guess_from_the_root_operator(lra):
    table = np.zeros((CLOSE, 10))
    for tokens in lra:
        table[tokens[0], evaluate(tokens)] += 1
    assert abs(table.max(axis=1).sum() / len(lra) - 0.361) < TOLERANCE * 0.48 / np.sqrt(len(lra))


def test_values_agree_with_an_independent_evaluator(lra):
    short = list(itertools.islice(expressions(SHORT, 1), 8000))
    for tokens in [*lra[:2000], *short]:
        assert evaluate(tokens) == reference.value(reference.parse(decode(tokens)))
    assert max(reference.depth(reference.parse(decode(tokens))) for tokens in lra[:500]) == 10


def test_distribution_without_a_length_bound():
    """At most one operator deep every attempt is accepted, so each decision shows by itself."""
    rules = Rules(min_length=0, max_length=100, max_depth=3)
    found = [tokens for block in range(12) for tokens in block_of_expressions(rules, 3, block)]
    trees = [reference.parse(decode(tokens)) for tokens in found]
    roots = [tree for tree in trees if not isinstance(tree, int)]
    assert len(trees) > 0.999 * 12 * ATTEMPTS_PER_BLOCK  # a root of ten tens has 112 tokens
    _assert_uniform([tree for tree in trees if isinstance(tree, int)], range(10))
    _assert_uniform([operator for operator, _ in roots], sorted(reference.OPERATORS))
    _assert_uniform([len(arguments) for _, arguments in roots], range(2, 11))
    assert abs(len(roots) / len(trees) - 0.25) < TOLERANCE * np.sqrt(0.1875 / len(trees))
    children = [child for _, arguments in roots for child in arguments]
    operators = sum(not isinstance(child, int) for child in children)
    assert abs(operators / len(children) - 0.25) < TOLERANCE * np.sqrt(0.1875 / len(children))
    assert max(map(reference.depth, trees)) == 3


def _assert_uniform(values, expected):
    shares = np.array([values.count(value) for value in expected]) / len(values)
    probability = 1 / len(expected)
    error = np.sqrt(probability * (1 - probability) / len(values))
    np.testing.assert_allclose(shares, probability, atol=TOLERANCE * error)


@pytest.mark.parametrize("rules", [SHORT, Rules(3, 7, 2, 3)])
def test_rules_are_kept_and_nothing_repeats(rules):
    count = 2000 if rules is SHORT else 500
    found = list(itertools.islice(expressions(rules, 0), count))
    assert len(set(found)) == count
    for tokens in found:
        tree = reference.parse(decode(tokens))
        assert rules.min_length < len(tokens) < rules.max_length
        assert reference.depth(tree) <= rules.max_depth
        assert _largest_arity(tree) <= rules.max_args


def _largest_arity(tree):
    if isinstance(tree, int):
        return 0
    return max(len(tree[1]), *map(_largest_arity, tree[1]))


def test_bytes_never_change():
    """Whoever prepares the data next year must get those of today."""
    assert _sha256(Rules(), 1000, workers=1) == SHA256_LRA
    assert _sha256(SHORT, 10_000, workers=1) == SHA256_SHORT


def test_workers_change_nothing():
    assert _sha256(Rules(), 1000, workers=2) == SHA256_LRA


def test_words_are_drawn_as_needed(monkeypatch):
    """Refilling in the middle of an expression changes nothing."""
    expected = block_of_expressions(Rules(), 0, 0)
    monkeypatch.setattr(listops_generator, "_WORDS_AT_ONCE", 777)
    assert block_of_expressions(Rules(), 0, 0) == expected


def test_seeds_and_blocks_differ():
    first = block_of_expressions(SHORT, 0, 0)
    assert not set(first) & set(block_of_expressions(Rules(30, 65), 1, 0))
    assert first != block_of_expressions(SHORT, 0, 1)
    assert first != block_of_expressions(SHORT, 2**63 - 1, 0)


def _sha256(rules, count, workers):
    source = expressions(rules, 0, workers)
    digest = hashlib.sha256(b"\n".join(itertools.islice(source, count))).hexdigest()
    source.close()
    return digest


def test_all_of_a_small_space_are_found_and_then_it_ends(monkeypatch):
    """Lengths 1 to 3: ten digits, and no operator is that short."""
    monkeypatch.setattr(listops_generator, "FRUITLESS_BLOCKS", 4)
    source = expressions(Rules(0, 4), 0)
    assert sorted(map(decode, itertools.islice(source, 10))) == list("0123456789")
    with pytest.raises(UserError, match="16,384 attempts gave no expression beyond the 10 found"):
        next(source)


def test_only_fruitless_blocks_in_a_row_end_it(monkeypatch):
    """Where new expressions are rare, those found in between keep it going."""

    def every_third(rules, seed, block):
        return [bytes([block // 3])]

    monkeypatch.setattr(listops_generator, "block_of_expressions", every_third)
    monkeypatch.setattr(listops_generator, "FRUITLESS_BLOCKS", 3)
    found = list(itertools.islice(expressions(SHORT, 0), 10))
    assert found == [bytes([number]) for number in range(10)]


def test_impossible_lengths_end():
    with pytest.raises(UserError, match="1,048,576 attempts gave no expression beyond the 0 found"):
        next(expressions(Rules(1, 4), 0))


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (Rules(min_length=-1), "--min_length=-1 is negative"),
        (Rules(min_length=500, max_length=500), "no length lies between"),
        (Rules(min_length=500, max_length=501), "no length lies between"),
        (Rules(min_length=500, max_length=100), "no length lies between"),
        (Rules(max_length=10**9), "--max_length=1000000000 is not in 2 to 100,000"),
        (Rules(max_depth=0), "--max_depth=0 is not in 1 to 1,000"),
        (Rules(max_args=1), "--max_args=1 is not in 2 to 1,000"),
    ],
)
def test_bad_rules(rules, message):
    with pytest.raises(UserError, match=message):
        next(expressions(rules, 0))
