"""Which checkpoints count; those of real runs are in test_loop.py."""

from lra.checkpoints import Checkpoints, Progress


def test_only_whole_checkpoints_count(tiny_trainer, tmp_path, capsys):
    trainer = tiny_trainer()
    checkpoints, abstract = Checkpoints(tmp_path), trainer.abstract_state()
    checkpoints.save(trainer.init(), Progress(step=3))
    hashes = tmp_path / "1.sha256.json"
    content = hashes.read_text()
    hashes.unlink()  # as by a kill before they were written
    assert checkpoints.restore(abstract) is None
    assert capsys.readouterr().err == ""
    hashes.write_text(content)
    checkpoints.save(trainer.init(), Progress(step=5))
    min(path for path in (tmp_path / "2").rglob("*") if path.is_file()).unlink()
    _, progress = checkpoints.restore(abstract)
    checkpoints.close()
    assert progress.step == 3
    assert "is damaged or missing" in capsys.readouterr().err
