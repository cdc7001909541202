"""What is under version control: text, pictures and small arrays, no leavings of tools."""

import pathlib
import re
import shutil
import subprocess

import pytest

_ROOT = pathlib.Path(__file__).parent.parent
_KINDS = {"", ".cff", ".jsonl", ".md", ".npz", ".png", ".py", ".sh", ".svg", ".toml", ".txt"}
_LARGEST = 2_000_000  # bytes; rows of cost are the largest file


def _tracked() -> list[pathlib.Path]:
    if not shutil.which("git"):
        pytest.skip("needs git")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=_ROOT, capture_output=True)
    if listed.returncode:  # a copy without history
        pytest.skip(listed.stderr.decode())
    return [_ROOT / name for name in listed.stdout.decode().split("\0") if name]


def test_files_are_of_known_kinds():
    unknown = [str(path) for path in _tracked() if path.suffix not in _KINDS]
    assert not unknown, "not for version control; add the kind here if it is"


def test_files_are_small():
    large = [str(path) for path in _tracked() if path.is_file() and path.stat().st_size > _LARGEST]
    assert not large


def test_pictures_are_on_a_page():
    """An SVG is the same picture as the PNG beside it, which the page shows."""
    tracked, shown = _tracked(), set()
    for page in (path for path in tracked if path.suffix == ".md"):
        targets = re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", page.read_text())
        shown |= {(page.parent / (link or source)).resolve() for link, source in targets}
    pictures = [path.resolve() for path in tracked if path.suffix in (".png", ".svg")]
    unseen = [str(path) for path in pictures if not {path, path.with_suffix(".png")} & shown]
    assert pictures
    assert not unseen, "no page shows them: remove them"
