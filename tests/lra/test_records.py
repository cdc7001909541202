"""Files of rows: nothing lost, nothing twice, whatever happens to the writer."""

import codecs
import errno
import functools
import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lra import records
from lra.errors import UserError
from lra.row import from_json, latest, to_json
from lra.seals import seal
from tests.lra.row_factory import diverged_row, failed_row, make_row
from tests.waiting import wait_for


def test_a_row_that_could_not_be_read_is_not_written(tmp_path):
    path = tmp_path / "rows.jsonl"
    with pytest.raises(UserError, match="half of a surrogate pair"):
        records.append(path, [make_row(), failed_row("no file caf\udce9")])
    assert records.append(path, [failed_row("no file 😀")]) == 1
    assert [row.error for row in records.read(path)] == ["no file 😀"]


def test_append_adds_each_key_once(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [make_row(seed=0), make_row(seed=1)]
    assert records.append(path, rows) == 2
    assert records.append(path, [make_row(0.9, seed=1), make_row(seed=2), make_row(seed=2)]) == 1
    assert records.read(path) == [*rows, make_row(seed=2)]


def test_a_failure_gives_way_to_a_result_and_a_result_stays(tmp_path):
    path = tmp_path / "rows.jsonl"
    assert records.append(path, [failed_row("a")]) == 1
    assert records.append(path, [failed_row("a")]) == 0
    assert records.append(path, [failed_row("b")]) == 1
    assert [row.error for row in latest(records.read(path))] == ["b"]
    assert records.append(path, [make_row()]) == 1
    assert records.append(path, [failed_row("c"), diverged_row(), make_row(0.9)]) == 0
    assert latest(records.read(path)) == [make_row()]


def test_what_is_there_is_read_under_the_lock(tmp_path, monkeypatch):
    path, real = tmp_path / "rows.jsonl", records._locked

    def wait(path):
        monkeypatch.setattr(records, "_locked", real)
        records.append(path, [make_row()])  # by whom had the lock
        return real(path)

    monkeypatch.setattr(records, "_locked", wait)
    assert records.append(path, [make_row()]) == 0
    assert records.read(path) == [make_row()]


def test_a_new_file_is_in_its_folder_on_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(records, "sync_folder", synced.append)
    for seed in range(2):
        records.append(tmp_path / "rows.jsonl", [make_row(seed=seed)])
    assert synced == [tmp_path]


def test_a_diverged_seed_is_a_result(tmp_path):
    path = tmp_path / "rows.jsonl"
    records.append(path, [diverged_row()])
    assert records.append(path, [make_row()]) == 0


def test_a_writer_cut_at_any_byte_loses_and_doubles_nothing(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    rows = [make_row(seed=seed) for seed in range(3)]
    records.append(path, rows)
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    around = {end + shift for end in ends[:-1] for shift in (-2, -1, 0, 1, 2)}
    for cut in sorted(around | set(range(ends[0], len(whole), 61))):
        path.write_bytes(whole[:cut])
        there = records.read(path)
        assert there == rows[: len(there)]
        # Reading has repaired the file: it is a prefix that ends with a whole row.
        repaired = path.read_bytes()
        assert repaired == whole[: len(repaired)]
        assert repaired[-1:] in (b"", b"}", b"\n")
        records.append(path, rows)
        assert path.read_bytes() == whole
    assert "cut short, moved to" in capsys.readouterr().err


def test_what_is_cut_short_is_set_aside(tmp_path):
    path = tmp_path / "rows.jsonl"
    records.append(path, [make_row()])
    with open(path, "ab") as file:
        file.write(b'{"schema": 1, "tas')
    records.append(path, [make_row(seed=1)])
    assert [row.seed for row in records.read(path)] == [0, 1]
    assert (tmp_path / "rows.jsonl.broken").read_bytes() == b'{"schema": 1, "tas\n'


def test_a_first_row_that_is_cut_short_is_set_aside(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"schema": 1, "tas')
    assert records.read(path) == []
    assert (tmp_path / "rows.jsonl.broken").read_bytes() == b'{"schema": 1, "tas\n'


@pytest.mark.parametrize("content", ["a note to myself\n", "test 0.37", "\n\ntest 0.37\n"])
def test_a_file_of_something_else_is_left_as_it_is(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_text(content)
    line = content.count("\n", 0, content.index("t")) + 1
    for action in (records.read, lambda path: records.append(path, [make_row()])):
        with pytest.raises(UserError, match=rf"notes\.txt, line {line}: not JSON"):
            action(path)
    assert path.read_text() == content
    assert not (tmp_path / "notes.txt.broken").exists()


def test_a_last_line_that_cannot_be_moved_is_still_not_used(tmp_path, capsys, monkeypatch):
    path = tmp_path / "rows.jsonl"
    records.append(path, [make_row()])
    with open(path, "ab") as file:
        file.write(b'{"schema"')
    monkeypatch.setattr(os, "access", lambda *_: False)
    before = path.read_bytes()
    assert records.read(path) == [make_row()]
    assert path.read_bytes() == before
    assert "not used" in capsys.readouterr().err


def test_a_last_line_that_a_full_disk_keeps_where_it_is_is_still_not_used(
    tmp_path, capsys, monkeypatch
):
    path = tmp_path / "rows.jsonl"
    records.append(path, [make_row()])
    with open(path, "ab") as file:
        file.write(b'{"schema"')
    before = path.read_bytes()

    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(records, "sync", full)
    assert records.read(path) == [make_row()]
    assert path.read_bytes() == before
    said = capsys.readouterr().err
    assert "not used" in said
    assert "moved" not in said


def test_reading_a_whole_file_makes_no_other_and_says_nothing(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    path.write_text(to_json(make_row()) + "\n")
    for repair in (True, False):
        assert records.read(path, repair=repair) == [make_row()]
    assert list(tmp_path.iterdir()) == [path]
    assert capsys.readouterr().err == ""


def test_a_file_that_is_only_read_stays_as_it_is(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    records.append(path, [make_row(), make_row(seed=1)])
    content = path.read_bytes()[:-30]
    path.write_bytes(content)
    for _ in range(2):
        assert records.read(path, repair=False) == [make_row()]
    assert path.read_bytes() == content
    assert not (tmp_path / "rows.jsonl.broken").exists()
    assert capsys.readouterr().err.count("its last line is cut short and not used") == 1


def test_a_broken_line_elsewhere_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    good = to_json(make_row())
    path.write_text(f"{good}\n{good[:50]}\n{good}\n")
    for action in (records.read, lambda path: records.append(path, [make_row()])):
        with pytest.raises(UserError, match=r"rows\.jsonl, line 2: not JSON"):
            action(path)
    assert path.read_text().count("\n") == 3


DIVERGED = json.loads(to_json(diverged_row()))
FAILED = json.loads(to_json(failed_row()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "schema 2 is unknown"),
        ({"test_accuracy": 37.1}, "test_accuracy is a fraction"),
        ({"test_accuracy": "0.5"}, "test_accuracy cannot be '0.5'"),
        ({"seed": True}, "seed cannot be True"),
        ({"seed": -1}, "seed cannot be -1"),
        ({"params": 10**400}, "params cannot be 1000"),
        ({"versions": {"jax": 3}}, "versions are text"),
        ({"config_overrides": {"a": [1, {"b": 10**400}]}}, "config_overrides has a number"),
        ({"config": {"a": 10**400}}, "config has a number"),
        ({"attention": "\ud800"}, "half of a surrogate pair"),
        ({"status": "fine"}, "status is one of"),
        ({"accuracy": 0.5}, "unknown field 'accuracy'"),
        ({"test_accuracy": None}, "test_accuracy does not fit status 'ok'"),
        ({"error": "but why"}, "error does not fit status 'ok'"),
        ({"best_step": None}, "best_step does not fit status 'ok'"),
        ({"test_accuracy_last": 1.001}, "test_accuracy_last is a fraction"),
        (DIVERGED | {"test_accuracy": 0.5}, "test_accuracy does not fit status 'diverged'"),
        (DIVERGED | {"best_step": 9}, "best_step does not fit status 'diverged'"),
        (FAILED | {"error": None}, "error does not fit status 'failed'"),
        (FAILED | {"best_step": 9}, "best_step does not fit status 'failed'"),
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path, change, message):
    path = tmp_path / "rows.jsonl"
    values = json.loads(to_json(make_row())) | change
    path.write_text(to_json(make_row()) + "\n" + json.dumps(values) + "\n")
    with pytest.raises(UserError, match=f"line 2: .*{message}"):
        records.read(path)


def test_every_flipped_bit_is_noticed(tmp_path, capsys):
    """In the last line it may look cut short, which is said and the line set aside."""
    path = tmp_path / "rows.jsonl"
    records.append(path, [make_row(), make_row(seed=1)])
    content = path.read_bytes()
    for position in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            assert len(records.read(path)) == 1
            assert "its last line is cut short" in capsys.readouterr().err
        except UserError as error:
            assert str(path) in str(error)  # noqa: PT017
    path.write_bytes(content)
    assert len(records.read(path)) == 2


def test_rows_may_be_written_again_with_other_spaces(tmp_path):
    """As `jq -c` and `jq` write them."""
    path, rows = tmp_path / "rows.jsonl", [make_row(), make_row(seed=1)]
    records.append(path, rows)
    values = [json.loads(line) for line in path.read_text().splitlines()]
    for separators in ((",", ":"), (" , ", " : ")):
        path.write_text("\n".join(json.dumps(v, separators=separators) for v in values))
        assert records.read(path) == rows
    values[1]["seed"] = 2
    for separators in ((",", ":"), (", ", ": ")):
        path.write_text("\n".join(json.dumps(v, separators=separators) for v in values))
        with pytest.raises(UserError, match=r"line 2: was edited.* differ, its sha256"):
            records.read(path)
    del values[1]["sha256"]
    path.write_text("\n".join(map(json.dumps, values)))
    assert records.read(path) == [make_row(), make_row(seed=2)]


LINE = json.dumps(json.loads(to_json(make_row())))
VALUE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just({})
EDITED = st.dictionaries(st.sampled_from([*json.loads(LINE), "more"]), VALUE, max_size=3).map(
    lambda changes: json.dumps(json.loads(LINE) | changes).encode()
)
DAMAGED = st.lists(st.tuples(st.integers(0, len(LINE) - 1), st.binary(max_size=2))).map(
    lambda changes: functools.reduce(
        lambda line, change: line[: change[0]] + change[1] + line[change[0] + 1 :],
        changes,
        LINE.encode(),
    )
)
DEEP = st.sampled_from([1, 100, 10**5]).map(lambda depth: b"[" * depth)


def test_two_whole_rows_in_the_last_line_are_not_cut_short(tmp_path):
    """As `cat` joins files of which the first lacks its last line break."""
    path = tmp_path / "rows.jsonl"
    for one, other in ((LINE, LINE), (seal(LINE), seal(LINE))):
        path.write_text(f"{LINE}\n{one}{other}\n")
        with pytest.raises(
            UserError, match=r"line 2: (not JSON; repair|.*; restore) or remove the line"
        ):
            records.read(path)
    assert not pathlib.Path(f"{path}.broken").exists()


@given(st.lists(EDITED | DAMAGED | DEEP | st.binary(max_size=20), max_size=3).map(b"\n".join))
def test_any_file_gives_rows_or_a_user_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "fuzzed.jsonl"
    path.write_bytes(content)
    try:
        rows = records.read(path)
    except UserError as error:
        assert str(path) in str(error)  # noqa: PT017
        return
    assert [from_json(to_json(row)) for row in rows] == rows


def test_a_byte_order_mark_is_no_damage(tmp_path, capsys):
    """As Windows editors write it, with their line breaks."""
    path, mark = tmp_path / "rows.jsonl", codecs.BOM_UTF8
    records.append(path, [make_row()])
    path.write_bytes(mark + path.read_bytes().replace(b"\n", b"\r\n"))
    assert records.read(path) == [make_row()]
    before = path.read_bytes()
    assert records.append(path, [make_row(), make_row(seed=1)]) == 1
    assert path.read_bytes().startswith(before)
    assert records.read(path) == [make_row(), make_row(seed=1)]
    assert capsys.readouterr().err == ""
    path.write_bytes(mark + LINE[:8].encode())
    assert records.append(path, [make_row()]) == 1
    assert pathlib.Path(f"{path}.broken").read_text() == f"{LINE[:8]}\n"
    path.write_bytes(mark)
    assert records.append(path, [make_row()]) == 1
    assert records.read(path) == [make_row()]


def test_rows_without_a_hash_are_read(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(to_json(make_row()) + "\n")
    records.append(path, [make_row(seed=1)])
    assert records.read(path) == [make_row(), make_row(seed=1)]


def test_missing_fields_and_nan_are_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    values = json.loads(to_json(make_row()))
    path.write_text(json.dumps({k: v for k, v in values.items() if k != "task"}) + "\n")
    with pytest.raises(UserError, match="line 1: not a row: task missing"):
        records.read(path)
    path.write_text(json.dumps(values | {"test_accuracy": float("nan")}) + "\n")
    with pytest.raises(UserError, match="NaN"):
        records.read(path)
    path.write_text("[1, 2]\n")
    with pytest.raises(UserError, match="not an object"):
        records.read(path)
    path.write_text(json.dumps(values | {"schema": "1"}) + "\n")
    with pytest.raises(UserError, match="its schema is no number"):
        records.read(path)


def test_a_row_written_by_hand_needs_no_schema(tmp_path):
    path = tmp_path / "rows.jsonl"
    values = json.loads(to_json(make_row()))
    for name in ("schema", "config", "val_is_test", "finished"):
        del values[name]
    path.write_text(json.dumps(values) + "\n")
    (row,) = records.read(path)
    assert (row.test_accuracy, row.config) == (make_row().test_accuracy, {})


def test_a_row_that_is_not_valid_is_not_written(tmp_path):
    path = tmp_path / "rows.jsonl"
    with pytest.raises(UserError, match="fraction"):
        records.append(path, [make_row(), make_row(51.0, seed=1)])
    assert not path.exists()


def test_write_once_leaves_what_is_there(tmp_path):
    path = tmp_path / "rows.jsonl"
    records.write_once(path, [make_row()])
    records.write_once(path, [make_row(seed=5)])
    assert records.read(path) == [make_row()]


@pytest.mark.parametrize("action", [records.check_writable, lambda p: records.append(p, [])])
def test_a_path_that_cannot_be_written_is_named(tmp_path, action):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write rows to"):
        action(tmp_path / "file" / "rows.jsonl")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_folder_that_takes_no_files_is_named():
    with pytest.raises(UserError, match="cannot write rows to /proc/"):
        records.check_writable("/proc/rows.jsonl")


def test_a_folder_is_no_file_of_rows(tmp_path):
    with pytest.raises(UserError, match="cannot write rows to"):
        records.check_writable(tmp_path)
    with pytest.raises(UserError, match=r"no rows in .*: it is a folder"):
        records.read(tmp_path)
    with pytest.raises(UserError, match="no such file"):
        records.read(tmp_path / "rows.jsonl")


_WRITER = """
import dataclasses, sys
from lra import records
from tests.lra.row_factory import make_row
for seed in range(10_000):
    records.append(sys.argv[1], [make_row(seed=seed), make_row(seed=seed + 1)])
"""


def test_writers_killed_at_random_moments_leave_each_row_once(tmp_path):
    path = tmp_path / "rows.jsonl"
    command = [sys.executable, "-c", _WRITER, str(path)]
    for delay in (0.02, 0.05, 0.11):
        # Two at a time, in each other's way.
        writers = [subprocess.Popen(command) for _ in range(2)]
        size = path.stat().st_size if path.exists() else 0
        wait_for(lambda size=size: path.exists() and path.stat().st_size > size, writers)
        time.sleep(delay)
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
    seeds = [row.seed for row in records.read(path)]
    assert seeds == list(range(len(seeds)))
    assert len(seeds) > 3


def test_the_lock_is_that_of_the_file_and_not_of_a_link(tmp_path):
    """Two writers by two names would not see each other."""
    folder = tmp_path / "real"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    path = tmp_path / "rows.jsonl"
    path.symlink_to(tmp_path / "link" / "rows.jsonl")
    for name in (path, tmp_path / "link" / "rows.jsonl", folder / "rows.jsonl"):
        assert records.append(name, [make_row()]) == (name == path)
    assert [lock.relative_to(tmp_path) for lock in tmp_path.rglob("*.lock")] == [
        pathlib.Path("real", "rows.jsonl.lock")
    ]


def test_rows_and_what_is_set_aside_are_on_the_disk(tmp_path, monkeypatch):
    """Every file was last synced at the length it has."""
    path, synced = tmp_path / "rows.jsonl", {}

    def fsync(number):
        status = os.fstat(number)
        if stat.S_ISREG(status.st_mode):
            synced[status.st_ino] = status.st_size

    monkeypatch.setattr("os.fsync", fsync)
    records.append(path, [make_row(seed=1)])
    assert synced == {path.stat().st_ino: path.stat().st_size}
    with open(path, "a") as file:
        file.write('{"task')
    records.append(path, [make_row(seed=2)])
    files = (path, tmp_path / "rows.jsonl.broken")
    assert synced == {file.stat().st_ino: file.stat().st_size for file in files}


def test_the_name_of_a_new_file_is_on_the_disk(tmp_path, monkeypatch):
    """Its folder is synced, once: later rows change nothing in it."""
    synced = []
    monkeypatch.setattr(records, "sync_folder", lambda folder: synced.append(folder))
    for seed in (1, 2):
        records.append(tmp_path / "rows.jsonl", [make_row(seed=seed)])
    assert synced == [tmp_path]


@pytest.mark.parametrize("name", ["/dev/full", "pipe"])
def test_rows_are_written_to_files_alone(tmp_path, name):
    if name == "pipe":
        os.mkfifo(name := tmp_path / name)
    with pytest.raises(UserError, match="it is no file; choose another name"):
        records.check_writable(name)


def test_a_number_beyond_floats_is_no_override(tmp_path):
    path = tmp_path / "rows.jsonl"
    line = to_json(make_row(config_overrides={"train.learning_rate": 0.123}))
    path.write_text(re.sub(r'("config_overrides": .*?)0\.123', r"\g<1>1e999", line) + "\n")
    with pytest.raises(UserError, match="config_overrides has a number"):
        records.read(path)


@pytest.mark.parametrize("first", [records.check_writable, lambda path: None])
def test_the_folder_of_new_rows_is_made(tmp_path, first):
    path = tmp_path / "new" / "folder" / "rows.jsonl"
    first(path)
    assert records.append(path, [make_row()]) == 1
