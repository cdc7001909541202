import random

from hypothesis import given
from hypothesis import strategies as st

from lra.data import official

EXAMPLES = st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=8)), max_size=8)


def fingerprint(examples) -> str:
    found = official.Fingerprint()
    for label, content in examples:
        found.add(label, content)
    return str(found)


@given(EXAMPLES, st.randoms(use_true_random=False))
def test_the_order_does_not_matter(examples, generator: random.Random):
    shuffled = list(examples)
    generator.shuffle(shuffled)
    assert fingerprint(shuffled) == fingerprint(examples)


@given(EXAMPLES, EXAMPLES)
def test_everything_else_does(first, second):
    assert (fingerprint(first) == fingerprint(second)) == (sorted(first) == sorted(second))


def test_data_are_named_after_what_differs():
    counts = {"train": 147_086, "test": 17_437}
    assert official.compare(counts, dict(counts), "pairs") == "official"
    assert official.compare(counts, dict(counts), "pairs", same_content=False) == (
        "differs (other content of the pairs)"
    )
    fewer = {"train": 79_600, "test": 9_950}
    assert official.compare(fewer, counts, "pairs") == "differs (79,600 / 9,950 pairs)"
