import numpy as np
import pytest
from PIL import Image

from lra.data import inspect, prepare, prepared
from lra.data.listops_language import encode
from lra.data.task_writer import TaskWriter
from lra.errors import UserError

PICTURES = np.arange(5 * 16, dtype=np.uint8).reshape(5, 16)


def write(data_dir, task, items, *, aliases=None, pairs=None, max_length=16):
    """The same examples in every split."""
    splits = [split for split in prepared.SPLITS if split not in (aliases or {})]
    with TaskWriter(data_dir, task) as writer:
        for split in splits if pairs is None else ["docs"]:
            writer.sequences(split, items)
        count = len(items) if pairs is None else len(pairs)
        for split in splits:
            writer.array(f"{split}/labels.npy", np.arange(count, dtype=np.int32) % 2)
            if pairs is not None:
                writer.array(f"{split}/pairs.npy", np.asarray(pairs, np.int32))
        return writer.finish(
            data="official",
            source="a test",
            counts=dict.fromkeys(prepared.SPLITS, count),
            max_length=max_length,
            aliases=aliases,
        )


def output_of(capsys, *arguments):
    assert inspect.main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def test_listops_shows_expressions_with_their_value(tmp_path, capsys):
    flags = {"min_length": 15, "max_length": 65, "train": 40, "validation": 5, "test": 5}
    manifest = prepare.prepare_task("listops", tmp_path, **flags)
    output = output_of(capsys, "listops", f"--data_dir={tmp_path}", "--examples=2")
    data = prepared.load(tmp_path, "listops")
    sequences, labels, _ = data.split("train")
    lengths = np.diff(sequences.offsets)
    assert f"  data        {manifest['data']}\n" in output
    assert f"  sha256      {manifest['sha256']}\n" in output
    assert "  parameters  min_length=15, max_length=65, max_depth=10, max_args=10\n" in output
    assert f"train: 40 examples\n  lengths     {lengths.min()} to {lengths.max()}, mean" in output
    assert f"  {labels[0]}: {np.mean(labels == labels[0]):.2%}" in output
    assert f"[0] label {labels[0]}\n" in output
    words = output.split()
    for index in range(2):
        end = words.index("=", words.index(f"[{index}]"))
        assert words[end + 1] == str(labels[index])
    assert "[2] label" not in output


def test_listops_shows_what_the_root_operator_alone_reveals(tmp_path, capsys):
    least, largest = (encode(f"[{name} 1 2 ]") for name in ("MIN", "MAX"))
    splits = {
        "train": ([least] * 3 + [largest] * 2, [1, 1, 1, 2, 2]),
        "validation": ([largest, least], [2, 2]),
        "test": ([largest], [2]),
    }
    with TaskWriter(tmp_path, "listops") as writer:
        for split, (items, labels) in splits.items():
            writer.examples(split, zip(items, labels, strict=True))
        counts = {split: len(labels) for split, (_, labels) in splits.items()}
        writer.finish(data="mine", source="a test", counts=counts, max_length=4)
    output = output_of(capsys, "listops", f"--data_dir={tmp_path}", "--examples=0")
    more = "by it and its number of arguments"
    assert [line for line in output.splitlines() if "guessing" in line] == [
        f"  guessing    train's most frequent label 60.00%, by the root 100.00%, {more} 100.00%",
        f"  guessing    train's most frequent label 0.00%, by the root 50.00%, {more} 50.00%",
        f"  guessing    train's most frequent label 0.00%, by the root 100.00%, {more} 100.00%",
    ]


def test_text_is_decoded_and_harmless(tmp_path, capsys):
    items = [b"caf\xc3\xa9 <br />\x1b[2J\nnext \xff end", b"long " * 1000]
    write(tmp_path, "text", items, aliases={"validation": "test"}, max_length=5000)
    output = output_of(capsys, "text", f"--data_dir={tmp_path}", "--split=validation")
    assert "caf\u00e9 <br /> [2J next \ufffd end" in output
    assert "\x1b" not in output
    assert "validation: the same as test" in output
    assert "[1] label 1\n  5,000 tokens" in output
    assert output.rstrip().endswith("...")
    assert output.count("long") < 150


def test_long_expressions_are_shortened_like_texts(tmp_path, capsys):
    long = "[SM " + "1 " * 900 + "]"
    write(tmp_path, "listops", [encode(long), encode("[MAX 2 7 ]")], max_length=902)
    output = output_of(capsys, "listops", f"--data_dir={tmp_path}", "--examples=1")
    shown = " ".join(output.partition("  902 tokens\n")[2].split())
    assert shown == f"{long[:600]} ... = 0".replace("  ", " ")


def test_retrieval_shows_both_documents(tmp_path, capsys):
    write(tmp_path, "retrieval", [b"first", b"second", b"third one"], pairs=[[0, 2], [1, 0]])
    output = output_of(capsys, "retrieval", f"--data_dir={tmp_path}", "--split=test")
    assert "test: 2 pairs\n  lengths     5 to 9, mean 6.2, median 6" in output
    assert "labels      0: 50.00%  1: 50.00%" in output
    assert "document 0, 5 tokens\n    first\n  document 2, 9 tokens\n    third one\n" in output


def test_retrieval_shows_what_is_known_without_reading_documents(tmp_path, capsys):
    splits = {
        "train": ([[0, 1], [0, 2], [3, 1], [3, 2], [3, 2]], [1, 0, 1, 0, 0]),
        "validation": ([[0, 1], [3, 2]], [1, 1]),
        "test": ([[1, 0]], [0]),  # neither is there in training
    }
    with TaskWriter(tmp_path, "retrieval") as writer:
        writer.sequences("docs", [b"a", b"b", b"c", b"d"])
        for split, (pairs, labels) in splits.items():
            writer.array(f"{split}/pairs.npy", np.asarray(pairs, np.int32))
            writer.array(f"{split}/labels.npy", np.asarray(labels, np.int32))
        counts = {split: len(labels) for split, (_, labels) in splits.items()}
        writer.finish(data="mine", source="a test", counts=counts, max_length=4)
    output = output_of(capsys, "retrieval", f"--data_dir={tmp_path}", "--examples=0")
    assert [line for line in output.splitlines() if "guessing" in line] == [
        "  guessing    by the first document 60.00%, by the second 100.00%, by both 60.00%",
        "  guessing    by the first document 0.00%, by the second 50.00%, by both 100.00%",
        "  guessing    by the first document 100.00%, by the second 100.00%, by both 100.00%",
    ]


@pytest.mark.parametrize("task", inspect.PICTURES)
def test_pictures_become_a_grid(tmp_path, capsys, task):
    write(tmp_path, task, list(PICTURES))
    out = tmp_path / "grid.png"
    output = output_of(capsys, task, f"--data_dir={tmp_path}", "--examples=9", f"--out={out}")
    assert "first 5 of train\nlabels, row by row: 0 1 0 1 0\n" in output
    grid = np.asarray(Image.open(out))
    # 4 x 4 pixels, each 24 x 24 in the picture; 3 columns, 2 rows, gaps of 4.
    assert grid.dtype == np.uint8
    assert grid.shape == (2 * 100 + 4, 3 * 100 + 4)
    picture = grid[104:200, 104:200]  # second row, second column: the last one
    np.testing.assert_array_equal(picture[12::24, 12::24], PICTURES[4].reshape(4, 4))
    np.testing.assert_array_equal(picture[::24, ::24], picture[23::24, 23::24])
    assert (grid[104:200, 204:300] == 128).all()


def test_a_picture_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    write(tmp_path, "image", list(PICTURES))
    out = tmp_path / "grid.png"
    out.write_bytes(b"before")

    def refuse(*_):
        raise OSError("no space")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(OSError, match="no space"):
        inspect.main(["image", f"--data_dir={tmp_path}", f"--out={out}"])
    assert out.read_bytes() == b"before"
    assert not list(tmp_path.glob(".grid*"))


def test_pictures_are_named_without_a_file(tmp_path, capsys):
    write(tmp_path, "image", list(PICTURES))
    output = output_of(capsys, "image", f"--data_dir={tmp_path}")
    assert "labels, row by row: 0 1 0\n--out=FILE.png writes them as a picture" in output


def test_large_pictures_keep_their_size():
    grid = inspect.picture_grid([np.zeros(128 * 128, np.uint8)])
    assert grid.shape == (136, 136)


def test_no_examples_are_shown_where_none_are_asked_for(tmp_path, capsys):
    write(tmp_path, "text", [b"a"])
    assert "first" not in output_of(capsys, "text", f"--data_dir={tmp_path}", "--examples=0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["txt"], "argument TASK: invalid choice: 'txt'"),
        (["image", "--split=dev"], "argument --split: invalid choice: 'dev'"),
        (["image", "--examples=x"], "invalid int value: 'x'"),
    ],
)
def test_bad_arguments(tmp_path, arguments, message):
    with pytest.raises(UserError, match=message):
        inspect.main([*arguments, f"--data_dir={tmp_path}"])
