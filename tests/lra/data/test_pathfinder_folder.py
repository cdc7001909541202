import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lra.data import pathfinder_folder
from lra.data.pathfinder_parameters import DASHES
from lra.errors import UserError
from tests.lra.data.pathfinder_images import picture, write_folder

# Of torch 2.13.0: randperm(n, generator=Generator().manual_seed(42)), as little-endian int64.
TORCH_SHA256 = {
    1000: "ac5c22de20fc5d169c3080fbf2719977f1c5e187f76217d18f95047e3cf159d6",
    199_999: "d46f4cc18070f72c8bc08134adfe133c09588443343ef119ade77dd360610502",
    200_000: "ee4e53fa9a9cb4316c55a0d184c7aa8fd2f92e97453e62e49195c42034a31789",
}


def edit(root, line, batch=1, place=2):
    path = root / "metadata" / f"{batch}.npy"
    lines = path.read_text().splitlines()
    lines[place] = line
    path.write_text("\n".join(lines))
    return path


def test_listing_is_in_numeric_order(tmp_path):
    root = write_folder(tmp_path, batches=12, per_batch=1)
    found = pathfinder_folder.listing(root)
    assert found.files == [f"imgs/{batch}/sample_0.png" for batch in range(12)]
    assert found.labels.tolist() == [0, 1] * 6
    assert found.labels.dtype == np.int32
    assert found.empty == []
    assert pathfinder_folder.count_lines(root) == 12


def test_examples(tmp_path):
    found = pathfinder_folder.listing(write_folder(tmp_path))
    examples = list(pathfinder_folder.examples(found, np.array([1, 6, 11]), 32))
    for number, (image, label) in zip((1, 6, 11), examples, strict=True):
        np.testing.assert_array_equal(image, picture(number).ravel())
        assert label == number % 2


def test_metadata_may_begin_with_a_byte_order_mark(tmp_path):
    root = write_folder(tmp_path)
    before = pathfinder_folder.listing(root).files
    for path in (root / "metadata").iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert pathfinder_folder.listing(root).files == before


def test_empty_images_are_left_out_and_named(tmp_path):
    root = write_folder(tmp_path)
    (root / "imgs/1/sample_2.png").write_bytes(b"")
    found = pathfinder_folder.listing(root)
    assert found.empty == ["imgs/1/sample_2.png"]
    assert len(found.files) == len(found.labels) == 11
    (image, label), *_ = pathfinder_folder.examples(found, np.array([6]), 32)
    np.testing.assert_array_equal(image, picture(7).ravel())
    assert label == 1


def test_folders_are_named_by_the_dashes_of_their_targets():
    names = {name: f"curv_contour_length_{number}" for name, number in DASHES.items()}
    assert names | {"easy": "curv_baseline"} == pathfinder_folder.FOLDERS


@pytest.mark.parametrize(
    "place",
    ["", "pathfinder32", "pathfinder32/curv_contour_length_14"],
)
@pytest.mark.parametrize("nested", ["", "lra_release", "lra_release/lra_release"])
def test_finds_the_folder(tmp_path, place, nested):
    root = write_folder(tmp_path / nested)
    inner = tmp_path / nested / place if place else tmp_path
    assert pathfinder_folder.find(str(inner), 32, "hard") == root


def test_of_several_copies_the_innermost_is_read(tmp_path, capsys):
    outer, inner = (
        write_folder(tmp_path / place) for place in ("lra_release", "lra_release/lra_release")
    )
    for source in (tmp_path, tmp_path / "lra_release"):
        assert pathfinder_folder.find(str(source), 32, "hard") == inner
        assert capsys.readouterr().err == f"{inner} is read, not {outer}\n"


@pytest.mark.parametrize(
    ("place", "size", "difficulty", "message"),
    [
        ("nowhere", 32, "hard", r"nowhere: no such folder \(or 'generate'\)"),
        ("", 32, "easy", "holds no pathfinder32/curv_baseline with a metadata folder"),
        ("", 64, "hard", "holds no pathfinder64/curv_contour_length_14"),
        ("pathfinder32/curv_contour_length_14", 32, "easy", "--difficulty=hard"),
    ],
)
def test_other_folders_are_refused(tmp_path, place, size, difficulty, message):
    write_folder(tmp_path)
    with pytest.raises(UserError, match=message):
        pathfinder_folder.find(str(tmp_path / place), size, difficulty)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("imgs/1 sample_2.png 2", r"1\.npy, line 3: 3 fields, at least 4 expected"),
        ("", r"1\.npy, line 3: 0 fields"),
        ("imgs/1 sample_2.png 2 2 1.0", r"1\.npy, line 3: the label is '2', not 0 or 1"),
        ("imgs/1 sample_9.png 2 0 1.0", r"1\.npy, line 3: no image .*imgs/1/sample_9\.png"),
        ("imgs/1 a\0b.png 2 0 1.0", r"1\.npy, line 3: no image"),
        ("/imgs/1 a.png 2 0 1.0", r"1\.npy, line 3: the image lies outside the folder"),
        ("imgs/1/../../.. a.png 2 0 1.0", r"1\.npy, line 3: the image lies outside the folder"),
    ],
)
def test_bad_metadata(tmp_path, line, message):
    root = write_folder(tmp_path)
    edit(root, line)
    with pytest.raises(UserError, match=message):
        pathfinder_folder.listing(root)


@pytest.mark.parametrize("folder", ["imgs/1", "imgs//1", "imgs/./1"])
@pytest.mark.parametrize("label", [0, 1])
def test_an_image_that_is_listed_twice_is_refused(tmp_path, folder, label):
    root = write_folder(tmp_path)
    edit(root, f"{folder} sample_0.png 2 {label} 1.0")
    message = r"1\.npy, line 3: imgs/1/sample_0\.png is listed a second time"
    with pytest.raises(UserError, match=message):
        pathfinder_folder.listing(root)


def test_metadata_that_are_arrays_are_refused(tmp_path):
    root = write_folder(tmp_path)
    np.save(root / "metadata" / "1.npy", np.array([["imgs/1", "sample_0.png", "0", "1"]]))
    with pytest.raises(UserError, match=r"1\.npy is a NumPy array"):
        pathfinder_folder.listing(root)


def test_metadata_with_another_name_are_refused(tmp_path):
    root = write_folder(tmp_path)
    (root / "metadata" / "combined.npy").write_text("")
    with pytest.raises(UserError, match=r"combined\.npy is not named by a number"):
        pathfinder_folder.listing(root)


def test_no_metadata(tmp_path):
    (tmp_path / "metadata").mkdir()
    with pytest.raises(UserError, match="holds no metadata"):
        pathfinder_folder.listing(tmp_path)


@pytest.mark.parametrize(
    ("image", "found"),
    [
        (Image.new("L", (32, 31)), "32 x 31 pixels of mode L"),
        (Image.new("RGB", (32, 32)), "32 x 32 pixels of mode RGB"),
        (Image.new("1", (32, 32)), "32 x 32 pixels of mode 1"),
        (Image.new("I;16", (32, 32)), "32 x 32 pixels of mode I;16"),
    ],
)
def test_other_sizes_and_modes_are_refused(tmp_path, image, found):
    image.save(tmp_path / "sample.png")
    with pytest.raises(UserError, match=rf"sample\.png is {found}, not 32 x 32 of mode L"):
        pathfinder_folder.read_image(tmp_path / "sample.png", 32)


def test_other_formats_are_refused(tmp_path):
    Image.new("L", (32, 32)).save(tmp_path / "sample.png", format="BMP")
    with pytest.raises(UserError, match=r"sample\.png is damaged or no PNG"):
        pathfinder_folder.read_image(tmp_path / "sample.png", 32)


def test_truncated_and_damaged_images_are_refused(tmp_path):
    """Cut, or with a bit of any byte turned over: refused, or the same image."""
    path = tmp_path / "sample.png"
    Image.fromarray(picture(0)).save(path)
    whole = path.read_bytes()
    variants = [whole[:length] for length in range(0, len(whole), 7)]
    variants.append(whole[:33] + whole[-12:])  # header and end alone
    variants += [
        whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :]
        for place in range(len(whole))
        for bit in (range(8) if place < 33 else (place % 8,))  # each of the header
    ]
    refused = 0
    for content in variants:
        path.write_bytes(content)
        try:
            np.testing.assert_array_equal(pathfinder_folder.read_image(path, 32), picture(0))
        except UserError as error:
            assert "sample.png" in str(error)  # noqa: PT017
            refused += 1
    assert refused > 0.9 * len(variants)


@pytest.mark.parametrize("count", TORCH_SHA256)
def test_permutation_is_that_of_torch(count):
    order = pathfinder_folder.torch_permutation(count, 42)
    assert hashlib.sha256(order.astype("<i8").tobytes()).hexdigest() == TORCH_SHA256[count]


def test_small_permutation_is_that_of_torch():
    assert pathfinder_folder.torch_permutation(10, 42).tolist() == [2, 6, 1, 8, 4, 5, 0, 9, 3, 7]


def test_split():
    parts = pathfinder_folder.split(25)
    assert {name: len(part) for name, part in parts.items()} == {
        "train": 21,
        "validation": 2,
        "test": 2,
    }
    order = pathfinder_folder.torch_permutation(25, 42)
    assert parts["validation"].tolist() == sorted(order[21:23])
    assert parts["test"].tolist() == sorted(order[23:])
    np.testing.assert_array_equal(np.sort(np.concatenate(list(parts.values()))), np.arange(25))


WORD = st.sampled_from(["imgs/0", "imgs/1", "..", "/", "sample_0.png", "sample_1.png", "0", "1"])
LINE = st.lists(WORD, max_size=6).map(lambda words: " ".join(words).encode()) | st.binary(
    max_size=9
)


@given(st.lists(LINE, max_size=4).map(b"\n".join))
def test_any_metadata_are_read_or_a_user_error(tmp_path_factory, content):
    parent = tmp_path_factory.getbasetemp() / "fuzzed"
    root = parent / "pathfinder32" / "curv_contour_length_14"
    if not root.exists():
        write_folder(parent)
    (root / "metadata" / "1.npy").write_bytes(content)
    try:
        found = pathfinder_folder.listing(root)
    except UserError as error:
        assert "1.npy" in str(error)  # noqa: PT017
        return
    assert len(found.files) == len(found.labels) == 8 + len(content.decode().splitlines())
    assert set(found.labels.tolist()) <= {0, 1}


@given(
    st.lists(st.tuples(st.integers(0, 1200), st.integers(0, 255)), min_size=1, max_size=8),
    st.integers(0, 1200),
)
def test_any_image_is_read_or_a_user_error(tmp_path_factory, changes, length):
    path = tmp_path_factory.getbasetemp() / "fuzzed.png"
    Image.fromarray(picture(0)).save(path)
    content = bytearray(path.read_bytes())
    for place, value in changes:
        content[place % len(content)] = value
    path.write_bytes(content[: max(length, 1000)])
    try:
        image = pathfinder_folder.read_image(path, 32)
    except UserError as error:
        assert "fuzzed.png" in str(error)  # noqa: PT017
        return
    assert image.shape == (32, 32)
    assert image.dtype == np.uint8
