"""A run goes on with other devices than it was saved with."""

import jax
import numpy as np
import pytest

from lra.checkpoints import Checkpoints, Progress
from lra.errors import UserError
from lra.evaluation import evaluate
from tests.suites import slow_but

pytestmark = pytest.mark.usefixtures("shared_programs")

SEEDS = "seeds=(0, 1, 2, 3)"


def on_mesh(tiny_trainer, seed, data):
    mesh = (f"mesh.seed={seed}", f"mesh.data={data}")
    return tiny_trainer("listops", "performer", SEEDS, *mesh)


@pytest.fixture(scope="module")
def on_eight(tiny_trainer, tmp_path_factory):
    """The state after three steps on 2 x 4 devices, saved in a folder; and three steps later."""
    folder = tmp_path_factory.mktemp("saved") / "checkpoints"
    trainer = on_mesh(tiny_trainer, 2, 4)
    state, _ = trainer.train(trainer.init(), 0, 3)
    state = trainer.update_best(state, np.array([0.1, 0.2, 0.3, 0.4], np.float32), 3)
    checkpoints = Checkpoints(folder)
    checkpoints.save(state, Progress(step=3))
    checkpoints.close()
    before = _bytes(state)
    state, metrics = trainer.train(state, 3, 3)
    return folder, before, jax.device_get((state.params, metrics))


def _bytes(state):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


@pytest.mark.parametrize(
    ("seed", "data"), slow_but([(1, 1)], [(1, 1), (4, 2), (1, 4), (2, 1), (2, 2)])
)
def test_a_checkpoint_of_eight_devices_goes_on_elsewhere(tiny_trainer, on_eight, seed, data):
    folder, before, (expected, expected_metrics) = on_eight
    trainer = on_mesh(tiny_trainer, seed, data)
    assert trainer.num_devices == seed * data
    checkpoints = Checkpoints(folder)
    state, progress = checkpoints.restore(trainer.abstract_state())
    checkpoints.close()
    assert progress.step == 3
    assert _bytes(state) == before
    for leaf in jax.tree.leaves(state):
        assert leaf.sharding.is_equivalent_to(trainer.shardings.per_seed, leaf.ndim)
    state, metrics = trainer.train(state, 3, 3)
    np.testing.assert_allclose(metrics.loss, expected_metrics.loss, atol=1e-5)
    for one, other in zip(jax.tree.leaves(state.params), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_speed_and_memory_are_of_one_kind_and_number_of_devices():
    times = {"train_seconds": 4.0, "train_examples": 24, "peak_memory_mb": 5.0}
    progress = Progress(**times, device="a device", num_devices=4)
    assert progress.going_on_with("a device", 4) == progress
    for device, number in (("a device", 1), ("another", 4)):
        assert progress.going_on_with(device, number) == Progress(device=device, num_devices=number)


def test_a_kill_after_a_damaged_checkpoint_loses_no_good_one(tiny_trainer, tmp_path, monkeypatch):
    trainer = tiny_trainer("listops", "linear")
    state, abstract = trainer.init(), trainer.abstract_state()
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        checkpoints.save(state, Progress(step=step))
    victim = max(
        (path for path in (tmp_path / "2").rglob("*") if path.is_file()),
        key=lambda path: path.stat().st_size,
    )
    victim.write_bytes(b"damaged")
    assert checkpoints.restore(abstract)[1].step == 1
    monkeypatch.setattr(checkpoints, "_write_hashes", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(state, Progress(step=3))
    checkpoints.close()
    again = Checkpoints(tmp_path)
    assert again.restore(abstract)[1].step == 1
    again.save(state, Progress(step=4))
    assert again.restore(abstract)[1].step == 4
    again.close()


@pytest.mark.parametrize(
    ("attention", "changed"),
    [("linear", ("model.mlp_dim=8",)), pytest.param("linformer", (), marks=pytest.mark.slow)],
)
def test_a_checkpoint_with_other_arrays_is_refused(tiny_trainer, tmp_path, attention, changed):
    """Others or of other shapes, as another version of the code may have written."""
    checkpoints = Checkpoints(tmp_path)
    saved = tiny_trainer("listops", attention, *changed)
    checkpoints.save(saved.init(), Progress(step=1))
    trainer = tiny_trainer("listops", "linear")
    with pytest.raises(UserError, match="1 has other arrays than"):
        checkpoints.restore(trainer.abstract_state())
    checkpoints.close()


def _interrupt(_number: int) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("other", [(1, 1), pytest.param((4, 2), marks=pytest.mark.slow)])
def test_evaluation_on_other_devices_gives_the_same(tiny_trainer, other):
    results = []
    for mesh in ((2, 4), other):
        trainer = on_mesh(tiny_trainer, *mesh)
        state = trainer.init()
        results.append(evaluate(trainer, state.params, state.rest, "test"))
    np.testing.assert_allclose(results[1].logits, results[0].logits, atol=1e-3)
    np.testing.assert_allclose(results[1].accuracy, results[0].accuracy, atol=1e-3)
