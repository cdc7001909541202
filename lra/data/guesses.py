"""Trivial guesses: how often labels can be guessed without reading whole examples.

All guesses are fitted on the training set (`by_both_documents` has one number from the validation
set). Accuracies near them need no better explanation.
"""

import numpy as np

from lra.data.compiled import compiled
from lra.data.listops_language import CLOSE
from lra.data.prepared import Split

# How much less a yes to the first document counts than one to the second (see `by_both_documents`).
_WEIGHTS = np.linspace(-3, 3, 121)


def most_frequent_label(train: Split, split: Split) -> float:
    """Return the accuracy of always guessing train's most frequent label."""
    features = (np.zeros(len(part.labels), np.int64) for part in (train, split))
    return _accuracy(train, split, *features)


def by_root(train: Split, split: Split, *, arguments: bool = False) -> float:
    """Return the accuracy of guesses by the root operator of a ListOps expression.

    Args:
        train: Training split, on which they are fitted.
        split: Split to guess the labels of.
        arguments: Whether the number of arguments of the root is known as well.
    """
    features = [part.sequences.tokens[part.sequences.offsets[:-1]] for part in (train, split)]
    if arguments:
        numbers = [_arguments_of_roots(*part.sequences) for part in (train, split)]
        base = max(map(np.max, numbers)) + 1
        features = [root * base + number for root, number in zip(features, numbers, strict=True)]
    return _accuracy(train, split, *features)


def by_document(train: Split, split: Split, column: int) -> float:
    """Return the accuracy of guesses by the identity of the document in one column of the pairs."""
    return _accuracy(train, split, train.pairs[:, column], split.pairs[:, column])


def by_both_documents(train: Split, validation: Split, split: Split) -> float:
    """Return the accuracy of guesses by the labels that both documents of a pair have in training.

    With a and b how often the first document has the labels 1 and 0 there, and c and d how often
    the second has, the guess is 1 where

        log((c + 1) / (d + 1)) > w (a - b)

    with the w from -3 to 3 that is best on the validation set (so the guess is fitted to that set,
    and fair only for others). A positive w says no where training says yes to the first document:
    if each document has as many pairs of either label in all splits together, those that training
    lacks are in the others.
    """
    size = 1 + max(int(part.pairs.max()) for part in (train, validation, split))
    first, second = (
        [
            np.bincount(train.pairs[train.labels == label, column], minlength=size)
            for label in (0, 1)
        ]
        for column in (0, 1)
    )
    of_first, of_second = first[1] - first[0], np.log((second[1] + 1) / (second[0] + 1))

    def accuracy(part: Split, weight: float) -> float:
        guesses = of_second[part.pairs[:, 1]] > weight * of_first[part.pairs[:, 0]]
        return float(np.mean(guesses == (part.labels == 1)))

    best = max(_WEIGHTS, key=lambda weight: accuracy(validation, weight))
    return accuracy(split, best)


@compiled
def _arguments_of_roots(tokens: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return how many arguments the outermost operator of each expression has, int64 [n]."""
    numbers = np.zeros(len(offsets) - 1, np.int64)
    for i in range(len(numbers)):
        depth = 0
        for token in tokens[offsets[i] : offsets[i + 1]]:
            if token == CLOSE:
                depth -= 1
                continue
            if depth == 1:
                numbers[i] += 1
            if token < CLOSE:
                depth += 1
    return numbers


def _accuracy(
    train: Split, split: Split, train_features: np.ndarray, split_features: np.ndarray
) -> float:
    """Return the accuracy of guessing labels from one feature of the examples.

    The guess is train's most frequent label for the value of the feature. For values that do not
    occur in train, and for ties, it is the one of these labels most frequent in all of train.

    Args:
        train: The training split.
        split: The split to guess the labels of.
        train_features: Integers from 0, one per example of `train`.
        split_features: Integers from 0, one per example of `split`.
    """
    values = max(train_features.max(), split_features.max()) + 1
    votes = np.zeros((values, train.labels.max() + 1), np.int64)
    np.add.at(votes, (train_features, train.labels), 1)
    guesses = (votes + votes.sum(axis=0) / (len(train.labels) + 1)).argmax(axis=1)
    return float(np.mean(split.labels == guesses[split_features]))
