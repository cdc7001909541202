"""The peers that can be installed are those that were measured."""

import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_bounds_are_the_versions_of_the_rows():
    lines = (ROOT / "benchmarks" / "requirements.txt").read_text().splitlines()
    newest = dict(line.split(">=") for line in lines if not line.startswith("#"))
    rows = (ROOT / "results" / "efficiency.jsonl").read_text().splitlines()
    for versions in (json.loads(row)["versions"] for row in rows):
        for name in newest.keys() & versions.keys():
            assert newest[name].split("<=")[1] == versions[name].partition("+")[0]
