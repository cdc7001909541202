import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lra.data import listops
from lra.data.listops_language import VOCABULARY, decode, encode, evaluate
from tests.lra.data import listops_reference as reference

trees = st.recursive(
    st.integers(0, 9),
    lambda children: st.tuples(
        st.sampled_from(sorted(reference.OPERATORS)), st.lists(children, min_size=1, max_size=11)
    ),
    max_leaves=60,
)


def test_vocabulary_is_fixed():
    assert " ".join(VOCABULARY) == "[MIN [MAX [MED [SM ] 0 1 2 3 4 5 6 7 8 9"
    assert listops.VOCABULARY is VOCABULARY
    assert listops.evaluate is evaluate


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9),  # the example of arXiv 1804.06028
        ("[MIN 3 4 ]", 3),
        ("[MED 1 2 ]", 1),
        ("[MED 9 1 5 ]", 5),
        ("[MED 8 0 3 9 ]", 5),
        ("[MED 0 0 9 9 ]", 4),
        ("[SM 9 9 9 ]", 7),
        ("[SM 4 ]", 4),
        ("[SM [MIN 9 8 ] [MAX 1 [MED 6 7 8 ] ] ]", 5),
    ],
)
def test_values_by_hand(text, value):
    ids = encode(text)
    assert ids.dtype == np.uint8
    assert evaluate(ids) == evaluate(ids.tobytes()) == evaluate(list(ids)) == value
    assert evaluate(text) == evaluate(text.split()) == value
    assert decode(ids) == text


@given(trees)
def test_agrees_with_an_independent_evaluator(tree):
    assert evaluate(encode(reference.text(tree))) == reference.value(tree)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([], "position 0: no expression"),
        ([5], "position 0: '\\]' closes no operator"),
        ([6, 5], "position 1: '\\]' closes no operator"),
        ([1, 5], "position 1: operator without arguments"),
        ([1, 6], "position 2: 1 missing '\\]'"),
        ([1, 2, 6], "position 3: 2 missing '\\]'"),
        ([6, 6], "position 1: the expression ended before this"),
        ([1, 6, 5, 2], "position 3: the expression ended before this"),
        ([0], "position 0: unknown id 0"),
        ([1, 16, 5], "position 1: unknown id 16"),
        ([1, -1, 5], "position 1: unknown id -1"),
        (["[MIN", "x", "]"], "position 1: unknown symbol 'x'"),
        ([1.5], "one sequence of integers or of symbols"),
        ([[1, 6, 5]], "one sequence of integers or of symbols"),
    ],
)
def test_malformed_expressions_name_the_position(tokens, message):
    with pytest.raises(ValueError, match=message):
        evaluate(tokens)


@given(st.lists(st.integers(-2, 17), max_size=40) | st.lists(st.text(max_size=4), max_size=5))
def test_anything_else_is_a_value_or_a_value_error(tokens):
    try:
        value = evaluate(tokens)
    except ValueError:
        return
    assert value in range(10)


def test_deep_nesting_needs_no_recursion():
    depth = 200_000
    assert evaluate(bytes([2] * depth + [6 + 3] + [5] * depth)) == 3


def test_foreign_symbols_and_ids_are_named():
    with pytest.raises(ValueError, match=r"position 1: unknown symbol '\[AVG'"):
        encode("[MIN [AVG 3 ] ]")
    with pytest.raises(ValueError, match="position 1: unknown id 0"):
        decode([6, 0])
