"""Prepared data: read as written, and refused where they are not what was written."""

import json

import numpy as np
import pytest

from lra.data import prepared, task_writer
from lra.data.prepared import Sequences, load
from lra.data.task_writer import TaskWriter
from lra.errors import UserError

ITEMS = [b"\x00\x01", np.array([7, 255], np.uint8), b"", b"\x03"]
LABELS = np.array([1, 0, 2, 1], np.int32)
FILES = [
    f"{split}/{name}.npy" for split in ("train", "test") for name in ("tokens", "offsets", "labels")
]


def write(data_dir, label=1, request=None, flags=()):
    """A small task whose validation set is its test set."""
    with TaskWriter(data_dir, "toy", request, flags) as writer:
        for split in ("train", "test"):
            assert writer.sequences(split, iter(ITEMS)) == 4
            writer.array(f"{split}/labels.npy", LABELS * label)
        return writer.finish(
            data="generated",
            source="a test",
            counts={"train": 4, "validation": 4, "test": 4},
            max_length=2,
            seed=5,
            parameters={"size": 3},
            aliases={"validation": "test"},
        )


def edit_manifest(root, **changes):
    path = root / "toy" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_what_is_written_is_read(tmp_path):
    manifest = write(tmp_path / "new" / "folder")
    data = load(tmp_path / "new" / "folder", "toy")
    assert data.manifest == manifest == json.loads((data.root / "manifest.json").read_text())
    assert manifest["format"] == prepared.FORMAT_VERSION
    assert manifest["task"] == "toy"
    assert sorted(manifest["files"]) == sorted(FILES)
    sequences, labels, pairs = data.split("train")
    assert pairs is None
    assert [sequences[i].tolist() for i in range(len(sequences))] == [[0, 1], [7, 255], [], [3]]
    assert sequences.tokens.dtype == np.uint8
    assert sequences.offsets.dtype == np.int64
    assert labels.dtype == np.int32
    assert labels.tolist() == [1, 0, 2, 1]
    assert isinstance(sequences.tokens, np.memmap)
    assert data.sha256 == manifest["sha256"]


def test_every_folder_is_on_the_disk_before_it_replaces_another(tmp_path, monkeypatch):
    order, replace = [], task_writer.atomic_folder.replace
    monkeypatch.setattr(task_writer, "sync_folder", lambda folder: order.append(str(folder)))

    def replace_and_note(target, partial):
        names = {str(partial), *(str(partial / split) for split in ("train", "test"))}
        assert set(order) == names
        order.append("replaced")
        replace(target, partial)

    monkeypatch.setattr(task_writer.atomic_folder, "replace", replace_and_note)
    write(tmp_path)
    assert order[-1] == "replaced"


def test_files_are_ordinary_npy_files(tmp_path):
    write(tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "toy/train/tokens.npy"), [0, 1, 7, 255, 3])
    np.testing.assert_array_equal(np.load(tmp_path / "toy/train/offsets.npy"), [0, 2, 4, 4, 5])


def test_an_alias_is_stored_once(tmp_path):
    write(tmp_path)
    data = load(tmp_path, "toy")
    assert not (data.root / "validation").exists()
    assert data.split("validation").labels.tolist() == data.split("test").labels.tolist()


def test_pairs_share_their_documents(tmp_path):
    pairs = np.array([[0, 3], [3, 1]], np.int32)
    with TaskWriter(tmp_path, "toy") as writer:
        writer.sequences("docs", ITEMS)
        for split in prepared.SPLITS:
            writer.array(f"{split}/pairs.npy", pairs)
            writer.array(f"{split}/labels.npy", LABELS[:2])
        writer.finish(data="x", source="x", counts=dict.fromkeys(prepared.SPLITS, 2), max_length=2)
    split = load(tmp_path, "toy").split("test")
    np.testing.assert_array_equal(split.pairs, pairs)
    assert split.sequences[int(split.pairs[0, 1])].tolist() == [3]
    assert split.labels.tolist() == [1, 0]


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_refused(tmp_path, name):
    write(tmp_path)
    path = tmp_path / "toy" / name
    content = bytearray(path.read_bytes())
    for position in (0, 60, len(content) - 1):
        damaged = content.copy()
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=rf"{name} differs from its manifest .*prepare toy"):
            load(tmp_path, "toy")
    path.write_bytes(content)
    load(tmp_path, "toy")


def test_truncated_grown_and_missing_files_are_refused(tmp_path):
    write(tmp_path)
    path = tmp_path / "toy" / "train" / "tokens.npy"
    content = path.read_bytes()
    for other in (content[:-1], b"", content + b"\x00"):
        path.write_bytes(other)
        message = rf"tokens.npy has {len(other)} bytes, its manifest says {len(content)}; prepare"
        for check_hashes in (True, False):
            with pytest.raises(UserError, match=message):
                load(tmp_path, "toy", check_hashes=check_hashes)
    path.unlink()
    with pytest.raises(UserError, match=r"tokens.npy is missing; prepare it again: python -m"):
        load(tmp_path, "toy")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "official"}, "was edited or damaged"),
        ({"counts": {"train": 5}}, "was edited or damaged"),
        ({"files": {}}, "was edited or damaged"),
        ({"more": 1}, "was edited or damaged"),
        ({"sha256": "0" * 64}, "was edited or damaged"),
        ({"format": 2}, "has format 2, this version reads 1"),
        ({"format": None}, "has format None, this version reads 1"),
    ],
)
def test_an_edited_manifest_is_refused(tmp_path, changes, message):
    write(tmp_path)
    edit_manifest(tmp_path, **changes)
    with pytest.raises(UserError, match=rf"manifest.json {message}"):
        load(tmp_path, "toy")


def test_the_data_of_another_task_are_refused(tmp_path):
    write(tmp_path)
    (tmp_path / "toy").rename(tmp_path / "pathx")
    with pytest.raises(UserError, match=r"manifest\.json is of task 'toy', not of pathx"):
        load(tmp_path, "pathx")


def test_a_flipped_bit_of_the_manifest_is_refused(tmp_path):
    write(tmp_path, request={"source": "generate", "seed": 3}, flags=["--seed=3"])
    path = tmp_path / "toy" / "manifest.json"
    content = path.read_bytes()
    for position in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position // 3 % 8
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"manifest.json (is not|was edited|has format)"):
            load(tmp_path, "toy")


def test_a_damaged_file_names_the_flags_it_was_made_with(tmp_path):
    write(tmp_path, flags=["--seed=3", "'--data_label=my data'"])
    (tmp_path / "toy" / "train" / "tokens.npy").unlink()
    again = f"prepare toy --data_dir={tmp_path} --seed=3 '--data_label=my data'$"
    with pytest.raises(UserError, match=again):
        load(tmp_path, "toy")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"3", b"{}", b"\xff\xfe", b'{"format": 1}', b"[" * 10**5]
)
def test_what_is_no_manifest_is_refused(tmp_path, content):
    write(tmp_path)
    (tmp_path / "toy" / "manifest.json").write_bytes(content)
    with pytest.raises(UserError, match=r"is not a manifest; prepare it again"):
        load(tmp_path, "toy")


def test_every_truncation_of_a_manifest_is_refused(tmp_path):
    write(tmp_path)
    path = tmp_path / "toy" / "manifest.json"
    content = path.read_bytes().rstrip()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(UserError, match="is not a manifest"):
            load(tmp_path, "toy")


def test_not_prepared(tmp_path):
    with pytest.raises(UserError, match=r"no prepared toy in .*: python -m lra.data.prepare toy"):
        load(tmp_path / "nowhere", "toy")


def test_the_hash_is_that_of_the_data_not_of_the_flags(tmp_path):
    first = write(tmp_path / "a", request={"seed": 5})
    second = write(tmp_path / "b", request={"seed": 5, "workers": 3})
    other = write(tmp_path / "c", label=2)
    assert first["sha256"] == second["sha256"] != other["sha256"]
    assert second["request"] == {"seed": 5, "workers": 3}


def test_the_hash_is_that_of_everything_but_the_flags(tmp_path):
    manifest = write(tmp_path)
    same = {
        name
        for name in manifest
        if prepared.data_sha256(manifest | {name: "another"}) == manifest["sha256"]
    }
    assert same == {"sha256", "request", "flags", "seal"}


def test_what_was_loaded_stays_when_the_folder_is_replaced(tmp_path, monkeypatch):
    write(tmp_path, label=1)
    before = load(tmp_path, "toy")
    sha256 = prepared.file_sha256

    def replacing(path):
        monkeypatch.setattr(prepared, "file_sha256", sha256)
        write(tmp_path, label=2)
        return sha256(path)

    monkeypatch.setattr(prepared, "file_sha256", replacing)
    during = load(tmp_path, "toy")
    assert before.split("train").labels[0] == 1
    assert during.split("train").labels[0] == 2
    assert during.sha256 == load(tmp_path, "toy").sha256 != before.sha256


def test_sequences_index_like_a_list():
    sequences = Sequences(np.arange(5, dtype=np.uint8), np.array([0, 2, 2, 5]))
    assert len(sequences) == 3
    assert [sequences[i].tolist() for i in range(3)] == [[0, 1], [], [2, 3, 4]]


@pytest.mark.parametrize(
    ("task", "more"),
    [
        ("listops", ""),
        ("text", " --source=download"),
        ("image", " --source=download"),
        ("retrieval", " --source=FOLDER"),
    ],
)
def test_the_hint_is_a_command_that_works(tmp_path, task, more):
    """Text, Image and Retrieval cannot be prepared without a source."""
    with pytest.raises(UserError) as error:
        prepared.load(tmp_path, task)
    command = f"python -m lra.data.prepare {task} --data_dir={tmp_path}"
    assert str(error.value).endswith(f"; prepare it: {command}{more}")
