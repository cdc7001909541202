"""The PyTorch peer computes the same function, and both sides are timed in turns."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from benchmarks import torch_train_step, worker
from lra import environment, training_rows
from lra.errors import UserError
from lra.settings import load_config
from lra.state import make_model
from lra.tasks import get_task
from tests.benchmarks.fake_worker import WorkerHere

LENGTH = 16
OPTIONS = {
    "standard": (),
    "nystrom": ("model.attention.num_landmarks=4", "model.attention.conv_kernel=3"),
    "linformer": ("model.attention.proj_dim=8",),
    "performer": ("model.attention.num_features=8",),
    "reformer": ("model.attention.chunk_length=4",),
}


def test_pytorchs_process_does_not_load_jax():
    """Its peak memory would be that of JAX too."""
    code = "import sys, benchmarks.torch_train_step; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def both(task_name, attention):
    """Our model and its peer, tiny."""
    torch_models = pytest.importorskip("benchmarks.torch_models")
    if "transformers" in torch_train_step.PEERS[attention]:
        pytest.importorskip("transformers")
    tiny = ("model.dim=16", "model.mlp_dim=16", "model.head_dim=8", *OPTIONS[attention])
    config = load_config(f"configs/{task_name}.py:{attention}", tiny)
    task = get_task(task_name)
    ours = make_model(config, task, LENGTH, nnx.Rngs(0))
    return ours, torch_models.Classifier(config.model.to_dict(), task, LENGTH).eval()


def copy(ours, theirs):
    """Give the peer our parameters."""
    import torch

    def load(parameter, array):
        array = np.asarray(array)
        assert parameter.shape == array.shape
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(array.copy()))

    def load_linear(layer, linear):
        load(layer.weight, linear.kernel[...].T)
        load(layer.bias, linear.bias[...])

    def load_norm(layer, norm):
        load(layer.weight, norm.scale[...])
        load(layer.bias, norm.bias[...])

    encoder = ours.encoder
    load(theirs.token.weight, encoder.token[...])
    load(theirs.position, encoder.position[...])
    for block, layer in zip(encoder.blocks, theirs.blocks, strict=True):
        load_norm(layer.attention_norm, block.attention_norm)
        load_norm(layer.mlp_norm, block.mlp_norm)
        for name in ("query", "key", "value"):
            load_linear(getattr(layer.attention, name), getattr(block.attention, name))
        for name, linear in (("output", block.attention.output), ("mlp_in", block.mlp_in)):
            load_linear(getattr(layer, name), linear)
        load_linear(layer.mlp_out, block.mlp_out)
        inner = block.attention.attention
        if hasattr(layer.attention, "e"):
            load(layer.attention.e, inner.e[0][...])
        if hasattr(layer.attention, "projection"):
            load(layer.attention.projection, inner.projection[...])
    load_norm(theirs.norm, encoder.norm)
    load_linear(theirs.hidden, ours.hidden)
    load_linear(theirs.logits, ours.logits)


@pytest.mark.parametrize("task", ["listops", "retrieval"])
@pytest.mark.parametrize("attention", ["standard", "linformer", "performer"])
def test_the_same_parameters_give_the_same_logits(task, attention):
    ours, theirs = both(task, attention)
    copy(ours, theirs)
    import torch

    shape = (3, 2, LENGTH) if get_task(task).pairs else (3, LENGTH)
    ids = np.random.default_rng(0).integers(1, 16, shape)
    # Performer's peer takes the maximum over padding too: equal only up to the features' epsilon.
    real = LENGTH if attention == "performer" else 11
    mask = np.broadcast_to(np.arange(LENGTH) < real, shape).copy()
    expected = ours(jnp.asarray(ids * mask), jnp.asarray(mask))
    with torch.no_grad():
        logits = theirs(torch.from_numpy(ids * mask), torch.from_numpy(mask))
    np.testing.assert_allclose(logits.numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("attention", torch_train_step.PEERS)
def test_sizes_are_equal(attention):
    ours, theirs = both("listops", attention)
    params = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(ours, nnx.Param)))
    # Hugging Face's Reformer: no bias in the value projections of two layers.
    missing = 2 * 16 if attention == "reformer" else 0
    assert params - missing == sum(parameter.numel() for parameter in theirs.parameters())


@pytest.mark.parametrize("attention", torch_train_step.PEERS)
def test_all_parameters_of_the_peer_are_trained(attention):
    _, theirs = both("listops", attention)
    import torch

    ids = torch.randint(1, 16, (2, LENGTH))
    theirs.train()(ids, torch.arange(LENGTH).expand(2, -1) < 13).sum().backward()
    for name, parameter in theirs.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


class InThisProcess(WorkerHere):
    """Stands in for processes, which take long to start; PyTorch takes half as long again."""

    def __init__(self, make, name, case, environment):
        answer = make(name, case)

        def ask(count):
            told = answer(count)
            return told if count == 0 else {"ours": 1.0, "torch": 1.5}[name]

        self.ask = ask


@pytest.mark.filterwarnings("default")  # PyTorch's
@pytest.mark.parametrize(
    "processes", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["here", "processes"]
)
def test_a_comparison_is_printed_and_written(processes, tmp_path, capsys, monkeypatch):
    pytest.importorskip("torch")
    if not processes:
        monkeypatch.setattr(torch_train_step, "Worker", InThisProcess)
        monkeypatch.setattr(torch_train_step, "hold_to", lambda threads: None)
    out = tmp_path / "rows.jsonl"
    # The other attentions' real sizes need more positions.
    flags = ["--attentions=standard,performer", "--length=16", "--rounds=1"]
    flags += ["--steps=1", "--threads=1"]
    assert torch_train_step.main([*flags, f"--out={out}"]) == 0
    rows = training_rows.read(out, training_rows.PeerRow)
    assert [row["attention"] for row in rows] == ["standard", "performer"]
    for row in rows:
        assert row["ours"]["params"] == row["torch"]["params"]
        assert row["commit"] == environment.commit()
        assert row["device"] == environment.cpu_name()
        assert {"jax", "torch"} <= row["versions"].keys()
        assert row["ratio"] == pytest.approx(1.5) or processes
    assert "ratio of medians: geometric mean" in capsys.readouterr().out


def test_the_turns_after_the_first_count_by_the_seconds_of_a_step(monkeypatch):
    turns = {"ours": iter((99.0, 4.0, 2.0, 6.0)), "torch": iter((99.0, 12.0, 8.0, 14.0))}

    environments = []

    class Timed(WorkerHere):
        def __init__(self, make, name, case, environment=None):
            environments.append(environment)
            self.ask = lambda count: next(turns[name]) if count else {}

    monkeypatch.setattr(torch_train_step, "Worker", Timed)
    monkeypatch.setattr(torch_train_step, "_PAUSE_SECONDS", 0)
    monkeypatch.setitem(torch_train_step.PEERS, "standard", ())
    flags = ["--length=16", "--rounds=3", "--steps=2", "--threads=1"]
    row = torch_train_step._compare("standard", torch_train_step._parse(flags))
    assert row["ours"] == {"milliseconds": 2000.0, "fastest": 1000.0}
    assert row["torch"] == {"milliseconds": 6000.0, "fastest": 4000.0}
    assert (row["ratio"], row["fastest_ratio"]) == (3.0, 4.0)
    # Each with huge pages, without which PyTorch waits for memory in every operation.
    assert environments == [worker.environment_for(1)] * 2


def test_without_packages_a_line_says_how_to_install_them(monkeypatch, capsys):
    monkeypatch.setattr(torch_train_step, "version_of", lambda name: None)
    with pytest.raises(UserError, match="nothing to measure"):
        torch_train_step.main(["--threads=1"])
    errors = capsys.readouterr().err
    assert "standard left out: pip install torch\n" in errors
    assert "nystrom left out: pip install torch transformers\n" in errors


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--attentions=nystorm", "no peer for the attention 'nystorm' .did you mean 'nystrom'"),
        ("--task=listop", "did you mean 'listops'"),
        ("--batch=0", "--batch"),
        ("--seconds=1", "unknown flag --seconds"),
        ("--threads=999", "--threads=999 are more than the cores that can be used"),
    ],
)
def test_bad_flags(flag, message):
    with pytest.raises(UserError, match=message):
        torch_train_step.main([flag])
