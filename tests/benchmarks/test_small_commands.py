"""Commands that print a few lines run as they should, at small sizes."""

import re

from benchmarks import listops_generation, pathfinder_generation, standard_memory


def test_expressions_are_counted_and_timed(capsys):
    assert listops_generation.main(["--count=50"]) == 0
    assert "expressions   50 in " in capsys.readouterr().out


def test_images_of_one_kind_are_timed(capsys):
    flags = ["--size=32", "--difficulty=easy", "--seconds=0.1"]
    assert pathfinder_generation.main(flags) == 0
    assert re.search(r"  32  easy +[1-9]", capsys.readouterr().out)


def test_memory_of_each_implementation_is_told(capsys):
    flags = ["--lengths=128", "--batch=1", "--heads=1", "--runs=0"]
    assert standard_memory.main(flags) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("xla", "chunked"))
