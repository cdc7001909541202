"""Trivial guesses, on splits whose answers can be counted by hand."""

import numpy as np
import pytest

from lra.data.guesses import by_both_documents, by_document, by_root, most_frequent_label
from lra.data.listops_language import encode
from lra.data.prepared import Sequences, Split


def expressions(*texts: str, labels: list[int]) -> Split:
    items = [encode(text) for text in texts]
    offsets = np.cumsum([0, *map(len, items)])
    return Split(Sequences(np.concatenate(items), offsets), np.array(labels, np.int32), None)


def pairs_of(*pairs: tuple[int, int], labels: list[int]) -> Split:
    documents = Sequences(np.zeros(0, np.uint8), np.zeros(1, np.int64))
    return Split(documents, np.array(labels, np.int32), np.array(pairs, np.int32))


def test_the_most_frequent_label_is_that_of_the_training_set():
    train = expressions("1", "2", "3", labels=[4, 4, 9])
    split = expressions("1", "2", "3", "4", labels=[9, 9, 9, 4])
    assert most_frequent_label(train, split) == 0.25


@pytest.mark.parametrize(("arguments", "accuracy"), [(False, 0.75), (True, 1.0)])
def test_only_arguments_of_the_root_count(arguments, accuracy):
    """Not those of operators inside, and an operator inside is one argument."""
    train = expressions(
        "[MAX 1 1 ]",
        "[MAX [MIN 1 1 1 ] 1 ]",
        "[MAX 1 [MED 1 1 ] 1 ]",
        "[MAX 1 1 1 ]",
        "[MAX 1 1 1 ]",
        "[MIN 1 1 1 ]",
        "5",
        labels=[1, 1, 2, 2, 2, 3, 5],
    )
    split = expressions(
        "[MAX [MAX 1 1 1 ] [MAX 1 1 1 ] ]",
        "[MAX [MIN 0 ] [MIN 0 [SM 1 1 1 1 ] ] 7 ]",
        "[MIN 1 1 1 ]",
        "5",
        labels=[1, 2, 3, 5],
    )
    assert by_root(train, split, arguments=arguments) == accuracy


def test_a_document_stands_for_its_labels_in_training():
    train = pairs_of((0, 1), (0, 2), (3, 1), (3, 2), (3, 2), labels=[1, 0, 1, 0, 0])
    split = pairs_of((0, 1), (3, 1), (3, 2), (5, 6), labels=[1, 1, 0, 0])
    assert by_document(train, split, 0) == 0.5  # document 0 is a tie: no, as most labels are
    assert by_document(train, split, 1) == 1.0


def test_what_training_lacks_of_a_balanced_document_is_elsewhere():
    """Every first document has two pairs of either label in all; the second ones say nothing."""
    train = pairs_of((0, 9), (0, 9), (0, 9), (1, 9), (1, 9), (1, 9), labels=[1, 1, 0, 1, 0, 0])
    others = pairs_of((0, 9), (1, 9), labels=[0, 1])
    assert by_document(train, others, 0) == 0.0
    assert by_both_documents(train, others, others) == 1.0


def test_the_validation_set_says_what_the_first_document_means():
    train = pairs_of((0, 9), (0, 9), (1, 9), (1, 9), labels=[1, 1, 0, 0])
    same, opposite = (pairs_of((0, 9), (1, 9), labels=labels) for labels in ([1, 0], [0, 1]))
    for validation in (same, opposite):
        assert by_both_documents(train, validation, validation) == 1.0
    assert by_both_documents(train, same, opposite) == 0.0


def test_documents_that_training_lacks_are_answered_with_no():
    train = pairs_of((0, 1), (0, 1), labels=[1, 0])
    split = pairs_of((7, 8), (8, 7), labels=[0, 1])
    assert by_both_documents(train, split, split) == 0.5
