import hashlib

import numpy as np
import pytest

from lra.data import prepare, prepared, request
from lra.data.listops_language import VOCABULARY, decode, encode, evaluate
from lra.errors import UserError
from tests.lra.data import listops_reference as reference

SHORT = {"min_length": 15, "max_length": 65, "train": 300, "validation": 40, "test": 60}
HEADER = "Source\tTarget\n"
# Of the training tokens and labels that SHORT and seed 0 gave when this was written.
SHA256_TOKENS = "9a6c9fc2857416ae3a4f6c8b97943b2947b7dab24f5820445ca0d053c1223464"
SHA256_LABELS = "d5a7c8756e8d06e10dc324c978fd4e2b059f8bef0b35e6c73141cd1697d11b17"
# Of the whole data set with LRA's own rules and seed 0, as in its manifest.
SHA256_LRA = "d7c92fe216c0d6480411e333b4f912bb3ed6f3d686a9b7d42d4b997e51164c30"


def write_tsv(folder, data):
    """A prepared task in the format of the released files."""
    for split, name in (("train", "train"), ("validation", "val"), ("test", "test")):
        sequences, labels, _ = data.split(split)
        trees = (reference.parse(decode(sequences[index])) for index in range(len(labels)))
        lines = [
            f"{reference.binary(tree)}\t{label}\n"
            for tree, label in zip(trees, labels, strict=True)
        ]
        (folder / f"basic_{name}.tsv").write_text(HEADER + "".join(lines))


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    prepare.prepare_task("listops", folder, **SHORT)
    return prepared.load(folder, "listops")


def test_manifest(short):
    manifest = short.manifest
    assert manifest["data"] == "differs (lengths 16 to 64, 300 / 40 / 60)"
    assert manifest["counts"] == {"train": 300, "validation": 40, "test": 60}
    assert manifest["seed"] == 0
    assert manifest["max_length"] == 64
    assert manifest["parameters"] == {
        "min_length": 15,
        "max_length": 65,
        "max_depth": 10,
        "max_args": 10,
    }


def test_labels_are_the_values_and_nothing_repeats(short):
    seen = []
    for name in prepared.SPLITS:
        sequences, labels, pairs = short.split(name)
        assert pairs is None
        assert labels.dtype == np.int32
        for index, label in enumerate(labels):
            tokens = sequences[index]
            assert tokens.min() >= 1
            assert tokens.max() <= len(VOCABULARY)
            assert label == reference.value(reference.parse(decode(tokens))) == evaluate(tokens)
            seen.append(tokens.tobytes())
    assert len(set(seen)) == len(seen) == 400


def test_splits_are_one_sequence_cut(tmp_path, short):
    """Where the cuts are changes no expression."""
    prepare.prepare_task("listops", tmp_path, **SHORT | {"train": 290, "validation": 50})
    other = prepared.load(tmp_path, "listops")
    first = [short.split(name).sequences.tokens for name in prepared.SPLITS]
    second = [other.split(name).sequences.tokens for name in prepared.SPLITS]
    np.testing.assert_array_equal(np.concatenate(first), np.concatenate(second))


def test_bytes_never_change(short):
    split = short.split("train")
    assert hashlib.sha256(split.sequences.tokens.tobytes()).hexdigest() == SHA256_TOKENS
    assert hashlib.sha256(split.labels.tobytes()).hexdigest() == SHA256_LABELS


def test_workers_and_repetition_change_nothing_and_seeds_do(tmp_path, short):
    same = prepare.prepare_task("listops", tmp_path / "a", **SHORT, workers=2)
    assert same["sha256"] == short.sha256
    other = prepare.prepare_task("listops", tmp_path / "b", **SHORT, seed=1)
    name = "train/tokens.npy"
    assert other["files"][name]["sha256"] != same["files"][name]["sha256"]


@pytest.mark.parametrize(
    ("flags", "mark"),
    [
        ({"max_depth": 4}, "differs (lengths 16 to 64, depth 4, 300 / 40 / 60)"),
        ({"max_args": 5}, "differs (lengths 16 to 64, up to 5 arguments, 300 / 40 / 60)"),
        ({"data_label": "my own"}, "my own"),
        (
            {"min_length": 500, "max_length": 2000, "train": 3, "validation": 2, "test": 1},
            "differs (lengths 501 to 1999, 3 / 2 / 1)",
        ),
    ],
)
def test_mark_says_what_differs(tmp_path, flags, mark):
    assert prepare.prepare_task("listops", tmp_path, **SHORT | flags)["data"] == mark


def test_all_of_lra(tmp_path):
    manifest = prepare.prepare_task("listops", tmp_path)
    assert manifest["data"] == "generated"
    assert manifest["sha256"] == SHA256_LRA


def test_files_give_the_same_arrays_as_the_generator(tmp_path, short):
    write_tsv(tmp_path, short)
    manifest = prepare.prepare_task("listops", tmp_path / "data", source=str(tmp_path))
    assert manifest["data"] == "differs (300 / 40 / 60 expressions)"
    assert manifest["max_length"] == 2000
    longer = prepare.prepare_task(
        "listops", tmp_path / "longer", source=str(tmp_path), max_length=3000
    )
    assert longer["data"] == "differs (max_length 3000, 300 / 40 / 60 expressions)"
    assert {name: facts["sha256"] for name, facts in manifest["files"].items()} == {
        name: facts["sha256"] for name, facts in short.manifest["files"].items()
    }


def test_files_with_the_official_counts_and_rules_are_official(tmp_path, monkeypatch):
    counts = {"train": 9, "validation": 2, "test": 2}
    prepare.prepare_task("listops", tmp_path / "generated", **counts)
    monkeypatch.setattr("lra.data.listops.OFFICIAL_COUNTS", counts)
    write_tsv(tmp_path, prepared.load(tmp_path / "generated", "listops"))
    flags = {"source": str(tmp_path), **counts}

    def prepare_again(**more):
        return prepare.prepare_task("listops", tmp_path / "data", **flags, **more)

    manifest = prepare_again()
    assert manifest["data"] == "official"
    assert manifest["seed"] is None
    # Longer inputs make other models.
    assert prepare_again(max_length=3000)["data"] == "differs (max_length 3000)"
    assert prepare_again(data_label="copy")["data"] == "copy"

    lines = (tmp_path / "basic_test.tsv").read_text().splitlines(keepends=True)
    (tmp_path / "basic_test.tsv").write_text("".join([*lines[:2], lines[1]]))
    assert prepare_again()["data"] == "differs (other content of the expressions)"


def test_files_of_short_expressions_are_not_official(tmp_path, monkeypatch, short):
    monkeypatch.setattr("lra.data.listops.OFFICIAL_COUNTS", short.manifest["counts"])
    write_tsv(tmp_path, short)
    flags = {"source": str(tmp_path), **{name: SHORT[name] for name in prepared.SPLITS}}
    manifest = prepare.prepare_task("listops", tmp_path / "data", **flags)
    assert manifest["data"] == "differs (other content of the expressions)"


@pytest.mark.parametrize("lengths", [(501, 1999), (500, 1999), (501, 2000)])
def test_lras_bounds_of_lengths_are_exclusive(lengths):
    from lra.data import listops

    mark = listops._mark_of_files(listops.OFFICIAL_COUNTS, 2000, set(lengths), are_distinct=True)
    assert (mark == "official") == (lengths == (501, 1999))


def test_length_limit_of_files_is_a_flag(tmp_path, short):
    write_tsv(tmp_path, short)
    with pytest.raises(UserError, match="--max_length=0 is not in 1 to 100,000"):
        prepare.prepare_task("listops", tmp_path / "data", source=str(tmp_path), max_length=0)
    with pytest.raises(UserError, match=r"line \d+: \d+ tokens, at most 60 are allowed"):
        prepare.prepare_task("listops", tmp_path / "data", source=str(tmp_path), max_length=60)
    manifest = prepare.prepare_task(
        "listops", tmp_path / "data", source=str(tmp_path), max_length=64
    )
    assert manifest["max_length"] == 64


@pytest.mark.parametrize("flag", [{"min_length": 15}, {"max_args": 5}, {"train": 300}])
def test_other_flags_of_the_generator_do_not_go_with_files(tmp_path, flag):
    with pytest.raises(UserError, match="only --max_length goes with files"):
        prepare.prepare_task("listops", tmp_path, source=str(tmp_path), **flag)


def test_estimate_bounds_what_is_written(tmp_path, short):
    from lra.data import listops

    options = request.parser_of("listops").parse_args(["listops"])
    vars(options).update(SHORT)
    written = sum(facts["bytes"] for facts in short.manifest["files"].values())
    headers = 128 * len(short.manifest["files"])
    assert written - headers <= listops.estimate(options).bytes
    write_tsv(tmp_path, short)
    files = request.parser_of("listops").parse_args(["listops", f"--source={tmp_path}"])
    tokens = sum(len(short.split(name).sequences.tokens) for name in prepared.SPLITS)
    assert listops.estimate(files).bytes >= tokens


def test_the_estimate_for_lra_is_the_size_on_disk():
    from lra.data import listops

    found = listops.estimate(request.parser_of("listops").parse_args(["listops"]))
    assert found.bytes == 105_200_000, "104,816,178 with seed 0"


def test_encode_is_what_is_stored(short):
    tokens = short.split("test").sequences[0]
    np.testing.assert_array_equal(encode(decode(tokens)), tokens)
