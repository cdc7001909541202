import gzip
import io
import pathlib
import pickle
import re
import subprocess
import sys
import tarfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lra.data.archives import ByteArray, read_members, unpickle_bytes
from lra.errors import UserError
from tests.lra.data.cifar_pickles import python2_pickle

MEMBERS = {"top/a.txt": b"first", "top/b.bin": bytes(range(256)) * 40, "top/sub/c.txt": b""}


def write_tar(path: pathlib.Path, members: dict[str, bytes]) -> pathlib.Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def read_all(path, limit=1 << 20) -> dict[str, bytes]:
    return dict(read_members(path, lambda _: True, limit))


def test_files_come_with_their_contents(tmp_path):
    assert read_all(write_tar(tmp_path / "a.tar.gz", MEMBERS)) == MEMBERS


def test_only_what_is_wanted_and_no_more_than_the_limit(tmp_path):
    path = write_tar(tmp_path / "a.tar.gz", MEMBERS)
    found = dict(read_members(path, lambda name: name.endswith(".bin"), 10))
    assert found == {"top/b.bin": bytes(range(10))}


OUTSIDE = ["../out", "top/../../out", "/etc/out", "//etc/out", "a\\..\\b", "C:\\out", "\\out"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_member_outside_the_folder_is_refused(tmp_path, name):
    path = write_tar(tmp_path / "a.tar.gz", {"top/a.txt": b"1", name: b"2"})
    with pytest.raises(UserError, match=r"a\.tar\.gz: refused.* points outside the folder"):
        read_all(path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.tar.gz"]


@pytest.mark.parametrize(
    "headers",
    [
        {"size": "99999999999999999999"},
        {"GNU.sparse.map": "abc"},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"},
    ],
)
def test_an_impossible_member_is_refused(tmp_path, headers):
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("top/a.txt")
        info.pax_headers = headers
        archive.addfile(info)
    with pytest.raises(UserError, match=r"a\.tar\.gz: (refused|truncated, damaged)"):
        read_all(path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo("top/link.txt")
        info.type, info.linkname = kind, "a.txt"
        archive.addfile(info)
    with pytest.raises(UserError, match=r"'top/link\.txt' is a link or a device"):
        read_all(path)


def test_every_truncation_is_noticed(tmp_path):
    whole = write_tar(tmp_path / "a.tar.gz", MEMBERS).read_bytes()
    cut = tmp_path / "cut.tar.gz"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"cut\.tar\.gz: truncated, damaged"):
            read_all(cut)


def test_a_flipped_bit_is_noticed(tmp_path):
    path = write_tar(tmp_path / "a.tar.gz", {"top/a.bin": np.random.default_rng(0).bytes(5000)})
    content = bytearray(path.read_bytes())
    content[2500] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="truncated, damaged"):
        read_all(path)


def test_a_tar_cut_before_it_was_compressed_is_noticed(tmp_path):
    path = write_tar(tmp_path / "a.tar.gz", {"top/a.txt": b"first", "top/b.txt": b"second"})
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content[: 5 * tarfile.BLOCKSIZE // 2]))
    with pytest.raises(UserError, match=r"truncated, damaged .*'top/a\.txt'"):
        read_all(path)


def test_a_tar_without_the_zeros_at_its_end_is_read(tmp_path):
    path = write_tar(tmp_path / "a.tar.gz", {"top/a.txt": b"first"})
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content[: 2 * tarfile.BLOCKSIZE]))
    assert read_all(path) == {"top/a.txt": b"first"}


def test_a_damaged_header_does_not_end_the_archive(tmp_path):
    path = write_tar(tmp_path / "a.tar.gz", {"top/a.txt": b"first", "top/b.txt": b"second"})
    content = bytearray(gzip.decompress(path.read_bytes()))
    content[2 * tarfile.BLOCKSIZE] ^= 1  # in the name of the second member
    path.write_bytes(gzip.compress(content))
    with pytest.raises(UserError, match=r"truncated, damaged .*checksum"):
        read_all(path)


def test_damage_in_what_follows_a_header_does_not_end_the_archive(tmp_path):
    path = write_tar(tmp_path / "a.tar.gz", {"top/a.txt": b"first"})
    content = gzip.decompress(path.read_bytes())
    info = tarfile.TarInfo("top/b.txt")
    info.type, info.size = tarfile.XHDTYPE, tarfile.BLOCKSIZE
    damaged = info.tobuf(tarfile.USTAR_FORMAT) + b"no record of a pax header".ljust(info.size)
    path.write_bytes(gzip.compress(content[: 2 * tarfile.BLOCKSIZE] + damaged))
    with pytest.raises(UserError, match=r"truncated, damaged .*'top/a\.txt'"):
        read_all(path)


def test_the_map_of_a_sparse_file_is_not_read(tmp_path):
    path = tmp_path / "a.tar.gz"
    info = tarfile.TarInfo("top/a.txt")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[482] = 1  # the map goes on in the next block, which is not there
    header[148:155] = b"%06o\0" % tarfile.calc_chksums(header)[0]
    path.write_bytes(gzip.compress(header))
    with pytest.raises(UserError, match="a sparse file"):
        read_all(path)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize(
    ("size", "count", "message"),
    [(2**30, 1, "a header of 1,073,741,824 bytes"), (0, 3000, "truncated, damaged")],
    ids=["one that is huge", "thousands"],
)
def test_extended_headers_without_bounds_are_refused(tmp_path, kind, size, count, message):
    path = tmp_path / "a.tar.gz"
    info = tarfile.TarInfo("top/a.txt")
    info.type, info.size = kind, size
    path.write_bytes(gzip.compress(info.tobuf(tarfile.USTAR_FORMAT) * count))
    with pytest.raises(UserError, match=message):
        read_all(path)


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_damaged_header_gives_members_or_a_user_error(tmp_path_factory, changes):
    """The checksum of gzip is right here, as of an archive that was made to do harm."""
    path = tmp_path_factory.getbasetemp() / "fuzzed.tar.gz"
    content = bytearray(gzip.decompress(write_tar(path, MEMBERS).read_bytes()))
    for place, value in changes:
        content[place % len(content)] = value
    path.write_bytes(gzip.compress(content))
    try:
        found = read_all(path)
    except UserError as error:
        assert str(path) in str(error)  # noqa: PT017
        return
    assert not any(name.startswith("/") or ".." in name.split("/") for name in found)


@pytest.mark.parametrize(
    "content",
    [b"", b"no archive", gzip.compress(b"no tar" * 500, mtime=0)],
    ids=["empty", "text", "gzip"],
)
def test_another_kind_of_file_is_refused(tmp_path, content):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"not a \.tar\.gz"):
        read_all(path)


VALUES = np.arange(24, dtype=np.uint8).reshape(2, 12)


@pytest.mark.filterwarnings("ignore:.*numpy.core:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*align should be passed")
def test_the_pickles_of_these_tests_are_numpys_own():
    batch = pickle.loads(python2_pickle(VALUES, [3, 1]), encoding="bytes")
    np.testing.assert_array_equal(batch[b"data"], VALUES)
    assert batch[b"labels"] == [3, 1]


def test_a_python_2_batch_is_read():
    batch = unpickle_bytes(python2_pickle(VALUES, [3, 1]), "data_batch_1")
    assert set(batch) == {b"batch_label", b"labels", b"data"}
    assert batch[b"labels"] == [3, 1]
    np.testing.assert_array_equal(batch[b"data"].values, VALUES)


@pytest.mark.parametrize("values", [VALUES, np.asfortranarray(VALUES)], ids="CF")
def test_todays_pickles_are_read_in_either_order(values):
    batch = unpickle_bytes(pickle.dumps({b"data": values}, protocol=4), "batch")
    np.testing.assert_array_equal(batch[b"data"].values, VALUES)


class Attack:
    """Runs a command when it is unpickled by `pickle.loads`."""

    def __init__(self, marker: pathlib.Path):
        self.marker = marker

    def __reduce__(self):
        return pathlib.Path.touch, (self.marker,)


def test_foreign_classes_are_refused_and_not_run(tmp_path):
    marker = tmp_path / "ran"
    content = pickle.dumps({b"data": Attack(marker)}, protocol=2)
    with pytest.raises(UserError, match=r"batch: refused.*foreign class"):
        unpickle_bytes(content, "batch")
    assert not marker.exists()
    pickle.loads(content)
    assert marker.exists()


@pytest.mark.parametrize("name", [b"cos\nsystem\n", b"cnumpy\nsave\n", b"cbuiltins\neval\n"])
def test_no_name_but_the_arrays_own_is_known(name):
    with pytest.raises(UserError, match="foreign class"):
        unpickle_bytes(b"\x80\x02" + name + b".", "batch")


@pytest.mark.parametrize("values", [VALUES.astype(np.int16), np.array([{}, []], object)])
def test_other_arrays_are_refused(values):
    with pytest.raises(UserError, match="batch: refused"):
        unpickle_bytes(pickle.dumps(values, protocol=4), "batch")


def test_every_truncated_pickle_is_refused():
    content = python2_pickle(VALUES, [3, 1])
    for length in range(len(content)):
        with pytest.raises(UserError, match="batch: refused or damaged"):
            unpickle_bytes(content[:length], "batch")


@pytest.mark.parametrize(
    "damage",
    [b"r\xff\xff\xff\x7f", b"p2147483647\n", b"B\xff\xff\xff\x7f", b"\x8b\xff\xff\xff\x7f"],
)
def test_a_damaged_size_takes_no_memory(damage):
    """The unpickler would make room for 2 GB, or for twice 2,147,483,647 pointers."""
    script = (
        "import resource, sys; from lra.data.archives import unpickle_bytes\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
        f"unpickle_bytes(b'\\x80\\x02]' + {damage!r} + b'.', 'batch')"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    # A MemoryError says nothing.
    assert re.search(r"UserError: batch: refused or damaged pickle \(.+\)", ended.stderr)


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_damaged_pickle_gives_plain_data_or_a_user_error(changes):
    content = bytearray(python2_pickle(VALUES, [3, 1]))
    for place, value in changes:
        content[place % len(content)] = value
    try:
        batch = unpickle_bytes(bytes(content), "batch")
    except UserError:
        return
    found = batch.values() if isinstance(batch, dict) else [batch]
    assert {type(value).__module__ for value in found} <= {"builtins", ByteArray.__module__}
