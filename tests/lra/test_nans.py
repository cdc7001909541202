"""`--debug_nans`: the step, the operation and the line of the first NaN."""

import re

from lra.loop import train
from lra.nans import STATUS_NAN


def test_the_first_nan_ends_the_run_in_one_line(tiny_config, data_dir, tmp_path, capsys):
    config = tiny_config("listops", "standard", "train.learning_rate=1e30", "train.warmup_steps=0")
    assert train(config, tmp_path, data_dir, debug_nans=True) == STATUS_NAN
    (line,) = capsys.readouterr().err.splitlines()
    expected = r"error: step \d+: invalid value \(nan\) encountered in \w+ \(models/.*\.py, line"
    assert re.match(expected, line), line
    assert not (tmp_path / "rows.jsonl").exists()
