import os
import pathlib
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lra.data import prepared, retrieval
from lra.data.prepare import prepare_task
from lra.errors import UserError

LONG = b"long " * 2000
# label, id, id, text, text; P1 and P2 recur, P3 has two texts.
PAIRS = {
    "train": [
        (b"1.0", b"P1", b"P2", b'He said "no', b"second \xff text"),
        (b"0.0", b"P2", b"P3", b"second \xff text", LONG),
        (b"1.0", b"P3", b"P1", b"another text of P3", b'He said "no'),
    ],
    "eval": [(b"0.0", b"P1", b"P4", b'He said "no', b'"fourth"')],
    "test": [(b"1", b"P4", b"P4", b'"fourth"', b'"fourth"')],
}
FILE_SPLITS = {"train": "train", "validation": "eval", "test": "test"}


def write_tsv(folder: pathlib.Path, pairs=PAIRS, end: bytes = b"\n") -> pathlib.Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in pairs.items():
        lines = [b"\t".join(row) + end for row in rows]
        (folder / f"new_aan_pairs.{split}.tsv").write_bytes(b"".join(lines))
    return folder


def write_documents(folder: pathlib.Path, pairs) -> pathlib.Path:
    (folder / "docs").mkdir(parents=True)
    for split, rows in pairs.items():
        lines = [b"\t".join(row[:3]) + b"\n" for row in rows]
        (folder / f"pairs.{split}.tsv").write_bytes(b"".join(lines))
        for _, first, second, *texts in rows:
            for name, text in zip((first, second), texts, strict=True):
                (folder / "docs" / f"{name.decode()}.txt").write_bytes(text)
    return folder


def contents(data_dir: pathlib.Path, split: str) -> list[tuple[int, bytes, bytes]]:
    found = prepared.load(data_dir, "retrieval").split(split)
    return [
        (int(label), *(found.sequences[i].tobytes() for i in pair))
        for label, pair in zip(found.labels, found.pairs, strict=True)
    ]


def expected(pairs, split: str) -> list[tuple[int, bytes, bytes]]:
    rows = pairs[FILE_SPLITS[split]]
    return [(int(float(row[0])), row[3][:4000], row[4][:4000]) for row in rows]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_pairs_of_a_tsv_are_their_texts(tmp_path, end):
    manifest = prepare_task("retrieval", tmp_path, source=write_tsv(tmp_path / "aan", end=end))
    for split in prepared.SPLITS:
        assert contents(tmp_path, split) == expected(PAIRS, split)
    assert manifest["counts"] == {"train": 3, "validation": 1, "test": 1}
    assert manifest["data"] == "differs (3 / 1 / 1 pairs)"
    assert manifest["max_length"] == 4000


def test_each_text_is_stored_once(tmp_path):
    prepare_task("retrieval", tmp_path, source=write_tsv(tmp_path / "aan"))
    split = prepared.load(tmp_path, "retrieval").split("train")
    texts = [split.sequences[i].tobytes() for i in range(len(split.sequences))]
    assert texts == [
        b'He said "no', b"second \xff text", LONG[:4000], b"another text of P3", b'"fourth"',
    ]  # fmt: skip
    assert split.pairs.dtype == np.int32
    assert split.pairs.tolist() == [[0, 1], [1, 2], [3, 0]]


def test_texts_that_differ_only_at_their_end_are_two(tmp_path):
    """Beyond the 4,000 bytes that are kept they are one."""
    begin = b"a" * 3999
    rows = [
        (b"1", b"P1", b"P2", begin + b"b", begin + b"c"),
        (b"0", b"P3", b"P4", begin + b"c" + b"d", begin + b"c" + b"e"),
    ]
    pairs = dict.fromkeys(PAIRS, rows)
    prepare_task("retrieval", tmp_path, source=write_tsv(tmp_path / "aan", pairs))
    split = prepared.load(tmp_path, "retrieval").split("train")
    assert split.pairs.tolist() == [[0, 1], [1, 1]]
    assert split.sequences[1].tobytes() == begin + b"c"


def test_a_folder_of_documents_gives_the_same_as_a_tsv(tmp_path):
    pairs = PAIRS | {"train": PAIRS["train"][:2]}
    tsv = prepare_task("retrieval", tmp_path / "a", source=write_tsv(tmp_path / "tsv", pairs))
    folder = write_documents(tmp_path / "aan", pairs)
    documents = prepare_task("retrieval", tmp_path / "b", source=folder)
    assert documents["files"] == tsv["files"]
    assert documents["source"] != tsv["source"]


@pytest.mark.parametrize("name", ["tsv_data", "lra_release/lra_release/tsv_data"])
def test_the_release_is_found_in_the_data_folder(tmp_path, name):
    write_tsv(tmp_path / "raw" / name)
    prepare_task("retrieval", tmp_path)
    assert contents(tmp_path, "test") == expected(PAIRS, "test")


def test_data_are_named_by_their_counts_or_by_the_user(tmp_path, monkeypatch):
    source = write_tsv(tmp_path / "aan")
    label = "AAN (reconstructed)"
    assert prepare_task("retrieval", tmp_path, source=source, data_label=label)["data"] == label
    counts = {"train": 3, "validation": 1, "test": 1}
    monkeypatch.setattr(retrieval, "OFFICIAL_COUNTS", counts)
    assert prepare_task("retrieval", tmp_path, source=source)["data"] == "official"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1.0\tP1\tP2\ttext\n", "4 columns"),
        (b"1.0\tP1\tP2\ta\tb\tc\n", "6 columns"),
        (b"\n", "1 columns"),
        (b"2.0\tP1\tP2\ta\tb\n", "label b'2.0'"),
        (b"nan\tP1\tP2\ta\tb\n", "label b'nan'"),
        (b"0_0\tP1\tP2\ta\tb\n", "label b'0_0'"),
        (b"label\tid1\tid2\ttext1\ttext2\n", "label b'label'"),
        (b"1.0\tP1\tP2\ta\t\n", "an empty document"),
        (b"1.0\tP1\tP2\t\tb\n", "an empty document"),
    ],
)
def test_a_bad_line_is_named_and_what_was_prepared_stays(tmp_path, line, message):
    folder = write_tsv(tmp_path / "aan")
    before = prepare_task("retrieval", tmp_path, source=folder)["sha256"]
    with open(folder / "new_aan_pairs.eval.tsv", "ab") as file:
        file.write(line)
    with pytest.raises(UserError, match=rf"new_aan_pairs\.eval\.tsv, line 2: .*{message}"):
        prepare_task("retrieval", tmp_path, source=folder)
    assert prepared.load(tmp_path, "retrieval").sha256 == before


@pytest.mark.parametrize("name", ["P9", "../secret", "/etc/passwd", "", "a\0b"])
def test_a_document_that_is_not_in_the_folder_is_named(tmp_path, name):
    folder = write_documents(tmp_path / "aan", PAIRS)
    (folder / "secret.txt").write_text("outside")
    with open(folder / "pairs.train.tsv", "a") as file:
        file.write(f"1.0\tP1\t{name}\n")
    with pytest.raises(UserError, match=r"pairs\.train\.tsv, line 4: no document"):
        prepare_task("retrieval", tmp_path, source=folder)


def test_an_empty_document_is_named(tmp_path):
    folder = write_documents(tmp_path / "aan", PAIRS)
    (folder / "docs" / "P2.txt").write_bytes(b"")
    with pytest.raises(UserError, match=r"line 1, .*P2\.txt: an empty document"):
        prepare_task("retrieval", tmp_path, source=folder)


def test_a_file_without_line_ends_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(retrieval, "_MAX_LINE_BYTES", 1000)
    folder = write_tsv(tmp_path / "aan")
    with pytest.raises(UserError, match=r"train\.tsv, line 2: longer than 1000 bytes"):
        prepare_task("retrieval", tmp_path, source=folder)


def test_pairs_of_one_label_train_nothing(tmp_path):
    source = write_tsv(tmp_path / "aan", PAIRS | {"train": PAIRS["train"][::2]})
    with pytest.raises(UserError, match=r"train\.tsv: all its pairs have the label 1"):
        prepare_task("retrieval", tmp_path, source=source)


def test_memory_does_not_grow_with_the_file(tmp_path):
    texts = [f"document {i} ".encode() * 2000 for i in range(20)]
    rows = [
        (b"%d" % (i % 2), b"A", b"B", texts[i % 20], texts[(i * 7 + 1) % 20]) for i in range(1000)
    ]
    folder = write_tsv(tmp_path / "aan", dict.fromkeys(("train", "eval", "test"), rows))
    size = sum(path.stat().st_size for path in folder.iterdir())
    del rows, texts
    tracemalloc.start()
    prepare_task("retrieval", tmp_path, source=folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size > 100e6
    assert peak < 5e6


FIELD = st.sampled_from([b"1.0", b"0.0", b"1", b"2", b"", b"text", b'"', b"\xff\r", b"x" * 4001])
LINE = st.lists(FIELD, min_size=3, max_size=6).map(b"\t".join)
NOISE = st.binary(max_size=30).filter(lambda content: b"\t" not in content)
FILE = st.lists(LINE | NOISE, max_size=5).map(b"\n".join)


@given(FILE)
@example(b'1.0\tA\tB\t"a\tb"\n0.0\tA\tB\tc\td')
def test_any_file_gives_its_pairs_or_a_user_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "fuzz.tsv"
    path.write_bytes(content)
    lines = content.split(b"\n")
    rows = [line.removesuffix(b"\r").split(b"\t") for line in lines[: len(lines) - (not lines[-1])]]
    valid = all(
        len(row) == 5 and row[0] in (b"1.0", b"0.0", b"1") and row[3] and row[4] for row in rows
    )
    if valid:
        found = list(retrieval.read_rows(path))
        assert [row.texts for row in found] == [(row[3][:4000], row[4][:4000]) for row in rows]
        assert [row.label for row in found] == [int(row[0][:1]) for row in rows]
    else:
        with pytest.raises(UserError, match=r"fuzz\.tsv, line \d+: "):
            list(retrieval.read_rows(path))


@pytest.mark.skipif("LRA_SHARED_DATA" not in os.environ, reason="needs the real data")
def test_the_real_pairs(tmp_path):
    folder = pathlib.Path(os.environ["LRA_SHARED_DATA"]) / "tsv_data"
    manifest = prepare_task("retrieval", tmp_path, source=folder)
    assert manifest["data"] == "differs (79,600 / 9,950 / 9,950 pairs)"
    for split, name in FILE_SPLITS.items():
        found = prepared.load(tmp_path, "retrieval").split(split)
        assert np.mean(found.labels) == pytest.approx(0.5, abs=0.01)
        with open(folder / f"new_aan_pairs.{name}.tsv", "rb") as file:
            for line, label, pair in zip(file, found.labels, found.pairs, strict=True):
                fields = line.rstrip(b"\n").split(b"\t")
                assert float(fields[0]) == label
                assert fields[3:] == [found.sequences[i].tobytes() for i in pair]
    assert len(found.sequences) <= 10_212
