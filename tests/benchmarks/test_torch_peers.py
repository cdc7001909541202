"""Peers are the modules they are called, on the shapes asked for."""

import dataclasses

import pytest

from benchmarks.cases import PEERS, Case, Contender, version_of

torch = pytest.importorskip("torch")
torch_peers = pytest.importorskip("benchmarks.torch_peers")

OPTIONS = {
    "standard": {},
    "nystrom": {"num_landmarks": 8, "pinv_iterations": 6, "conv_kernel": 3},
    "linformer": {"proj_dim": 8, "share": ("kv",), "projection": "linear"},
    "performer": {"num_features": 16, "kernel": "softmax"},
    "reformer": {"num_hashes": 2, "chunk_length": 16},
    "longformer": {"window": 8},
}
CASE = Case("module", "forward_backward", length=64, batch=2, dim=16, heads=2, dtype="float32")


def contender(method, peer, **options):
    chosen = OPTIONS[method] | options
    return Contender(method, chosen, peer, f"{method} ({peer})")


@pytest.mark.filterwarnings("default")  # of the libraries
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("method", "peer"), torch_peers._MODULES)
def test_every_peer_runs_forward_and_backward(method, peer, dtype):
    if version_of(PEERS[method][peer]) is None:
        pytest.skip(f"{peer} is not installed")
    case = dataclasses.replace(CASE, dtype=dtype)
    chosen = contender(method, peer)
    torch_peers.check(chosen, case)
    program = torch_peers.build(chosen, case)
    program.run()
    assert program._x.grad.shape == (2, 64, 16)
    assert torch.isfinite(program._x.grad).all()
    used = [p for name, p in program._module.named_parameters() if "global" not in name]
    assert all(p.grad is not None for p in used)
    assert program.argument_bytes >= sum(p.numel() * 4 for p in used) + 2 * program._x.nbytes


@pytest.fixture
def on_meta():
    """A default device whose tensors cannot be copied to the CPU, nor used with the CPU's."""
    torch.set_default_device("meta")
    yield
    torch.set_default_device("cpu")


@pytest.mark.filterwarnings("default")  # of the libraries
@pytest.mark.parametrize(("method", "peer"), torch_peers._MODULES)
def test_every_peer_is_made_on_the_cpu_and_runs_on_the_default_device(method, peer, on_meta):
    if version_of(PEERS[method][peer]) is None:
        pytest.skip(f"{peer} is not installed")
    program = torch_peers.build(contender(method, peer), CASE)
    tensors = [*program._module.parameters(), *program._module.buffers(), program._x]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    program.run()  # raises where tensors of two devices meet
    assert program._x.grad.device.type == "meta"


def test_torchs_kernel_is_plain_softmax_attention():
    torch.manual_seed(0)
    module, x = torch_peers.Softmax(16, 2, fused=True), torch.randn(2, 64, 16)
    fused = module(x)
    module.fused = False
    torch.testing.assert_close(fused, module(x), atol=1e-6, rtol=0)


def test_lengths_that_a_peer_refuses():
    forty, forty_one = (dataclasses.replace(CASE, length=length) for length in (40, 41))
    with pytest.raises(ValueError, match="multiples of 16 positions"):
        torch_peers.check(contender("longformer", "transformers"), forty)
    torch_peers.check(contender("nystrom", "nystrom-attention"), forty_one)
