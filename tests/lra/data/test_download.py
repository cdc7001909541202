import concurrent.futures
import hashlib
import pathlib

import pytest

from lra.data import download as downloads
from lra.data import image, request, text
from lra.data.download import Remote, check_reachable, download
from lra.errors import UserError
from tests.lra.data.file_server import FileServer, serve

CONTENT = bytes(range(256)) * 4000


@pytest.fixture
def server():
    with serve(CONTENT) as running:
        yield running


def remote(server: FileServer, content: bytes = CONTENT) -> Remote:
    return Remote(server.url("file.bin"), len(content), hashlib.sha256(content).hexdigest())


def visible(folder: pathlib.Path) -> list[str]:
    return [path.name for path in folder.iterdir() if not path.name.startswith(".")]


@pytest.mark.parametrize("module", [text, image])
def test_downloads_are_over_https(module):
    assert module.ARCHIVE.url.startswith("https://")


@pytest.mark.parametrize(("task", "module"), [("text", text), ("image", image)])
def test_a_download_that_is_not_there_counts_in_the_estimate(tmp_path, task, module):
    def estimated(source):
        argv = [task, f"--source={source}", f"--data_dir={tmp_path}"]
        return module.estimate(request.parser_of(task).parse_args(argv)).bytes

    assert estimated("download") == estimated("tfds") + module.ARCHIVE.bytes
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / module.ARCHIVE.name).touch()
    assert estimated("download") == estimated("tfds")


@pytest.mark.parametrize("fetch", [download, lambda remote, _: check_reachable(remote)])
@pytest.mark.parametrize("scheme", ["http", "ftp", "file"])
def test_other_addresses_are_refused(tmp_path, fetch, scheme):
    insecure = Remote(f"{scheme}://127.0.0.1/file.bin", 1, "0" * 64)
    refusal = rf"{scheme}://127\.0\.0\.1/file\.bin is not https, .*--source=PATH"
    with pytest.raises(UserError, match=refusal):
        fetch(insecure, tmp_path)


@pytest.mark.parametrize("address", ["http://localhost/file.bin", "ftp://127.0.0.1/file.bin"])
def test_a_redirect_to_another_address_is_refused(server, tmp_path, address):
    server.redirect = address
    with pytest.raises(UserError, match=f"^{address} is not https, .*--source=PATH"):
        download(remote(server), tmp_path)


def test_a_redirect_to_an_address_that_is_allowed_is_followed(server, tmp_path):
    with serve(CONTENT) as other:
        server.redirect = other.url("moved.bin")
        assert download(remote(server), tmp_path).read_bytes() == CONTENT


def test_a_download_has_its_name_only_when_complete(server, tmp_path):
    path = download(remote(server), tmp_path / "raw")
    assert path == tmp_path / "raw" / "file.bin"
    assert path.read_bytes() == CONTENT
    assert visible(path.parent) == ["file.bin"]


def test_its_name_is_synced_as_well(server, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(downloads, "sync_folder", lambda path: seen.append((path, visible(path))))
    download(remote(server), tmp_path)
    assert seen == [(tmp_path, ["file.bin"])]


def test_a_file_that_is_there_is_not_fetched_again(server, tmp_path):
    download(remote(server), tmp_path)
    download(remote(server), tmp_path)
    assert server.requested == [None]


def test_a_lost_connection_is_continued_where_it_broke(server, tmp_path):
    server.cut_after = 300_000
    with pytest.raises(UserError, match=r"after 0\.3 of 1\.0 MB; run again to continue"):
        download(remote(server), tmp_path)
    assert not (tmp_path / "file.bin").exists()
    server.cut_after = None
    assert download(remote(server), tmp_path).read_bytes() == CONTENT
    assert server.requested == [None, "bytes=300000-"]


def test_a_server_that_cannot_continue_is_read_from_the_start(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:1000])
    server.ranges = False
    assert download(remote(server), tmp_path).read_bytes() == CONTENT
    assert server.requested == ["bytes=1000-"]


def test_a_wrong_checksum_is_refused_and_the_next_run_starts_clean(server, tmp_path):
    wrong = remote(server)._replace(sha256="0" * 64)
    with pytest.raises(UserError, match=r"file\.bin: wrong checksum"):
        download(wrong, tmp_path)
    assert visible(tmp_path) == []


def test_a_damaged_part_is_removed(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    with pytest.raises(UserError, match="wrong checksum"):
        download(remote(server), tmp_path)
    assert download(remote(server), tmp_path).read_bytes() == CONTENT


def test_another_file_of_the_same_name_is_refused(server, tmp_path):
    (tmp_path / "file.bin").write_bytes(b"mine")
    with pytest.raises(UserError, match=r"file\.bin: wrong checksum \(sha256\); remove it"):
        download(remote(server), tmp_path)
    assert (tmp_path / "file.bin").read_bytes() == b"mine"


@pytest.mark.parametrize("length", [500, len(CONTENT) * 3])
def test_a_file_of_another_length_is_refused(tmp_path, length):
    with serve((CONTENT * 3)[:length]) as server, pytest.raises(UserError):
        download(remote(server), tmp_path)
    assert not (tmp_path / "file.bin").exists()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= len(CONTENT)


def test_a_part_longer_than_the_servers_file_is_dropped(tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:2000])
    with serve(CONTENT[:1000]) as server, pytest.raises(UserError, match="answers 416"):
        download(remote(server), tmp_path)
    assert (tmp_path / "file.bin.part").stat().st_size == 0


def test_what_the_server_refuses_is_named(server, tmp_path):
    server.status = 404
    with pytest.raises(UserError, match=r"the server answers 404 Not Found.*--source=PATH"):
        download(remote(server), tmp_path)


def test_without_a_network_the_cure_is_named(server, tmp_path):
    unreachable = remote(server)._replace(url="https://127.0.0.1:1/file.bin")
    with pytest.raises(UserError, match=r"no connection to 127\.0\.0\.1:1 .*--source=PATH"):
        download(unreachable, tmp_path)


def test_two_runs_at_once_fetch_it_once(server, tmp_path):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: download(remote(server), tmp_path), range(2)))
    assert [path.read_bytes() for path in paths] == [CONTENT] * 2
    assert server.requested == [None]
