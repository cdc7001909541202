"""Names of contenders, predictions and batches."""

import pytest

from benchmarks import cases
from benchmarks.cases import (
    filling_batch,
    least_exponent,
    parse_methods,
    parse_widths,
    peers_of,
    power_law,
)
from lra.errors import UserError


def test_labels_show_the_size_and_what_else_was_given():
    text = "standard:implementation=xla,standard,nystrom:num_landmarks=32:conv_kernel=0,linformer"
    labels = [contender.label for contender in parse_methods(text)]
    assert labels == [
        "standard (xla)",
        "standard (auto)",
        "nystrom-32 conv_kernel=0",
        "linformer-256",
    ]


def test_a_window_counts_both_sides_and_the_position():
    assert cases.label_of("longformer", {"window": 128}, {}) == "longformer-257"
    assert cases.label_of("linear", {}, {}) == "linear"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nystorm", "did you mean 'nystrom'"),
        ("nystrom:num_landmark=3", "did you mean 'num_landmarks'"),
        ("nystrom:64", "not OPTION=VALUE"),
        ("nystrom,nystrom:num_landmarks=64", "twice"),
        (",", "no method"),
    ],
)
def test_bad_methods_are_named(text, message):
    with pytest.raises(UserError, match=message):
        parse_methods(text)


def test_an_option_may_be_a_tuple():
    text = "linformer:proj_dim=(128,256):share=('kv',),nystrom,linformer:share=['kv','heads']"
    options = [contender.options for contender in parse_methods(text)]
    assert options == [
        {"proj_dim": (128, 256), "share": ("kv",)},
        {},
        {"share": ["kv", "heads"]},
    ]
    with pytest.raises(UserError, match="unknown attention 'nystorm'"):
        parse_methods("linformer:proj_dim=(128,256),nystorm")


def test_widths():
    assert parse_widths("64x2,768x12") == [(64, 2), (768, 12)]
    for text in ("64", "64x", "64x3", "ax2", "0x1", "64x0"):
        with pytest.raises(UserError, match="--widths"):
            parse_widths(text)


def test_peers_have_the_options_of_ours(monkeypatch):
    monkeypatch.setattr(cases, "version_of", lambda name: "1.0")
    ours = parse_methods("standard:implementation=xla,standard,nystrom:num_landmarks=32")
    peers, skipped = peers_of(ours, "all")
    assert not skipped
    assert [(peer.label, peer.source, peer.framework) for peer in peers] == [
        ("standard (torch sdpa)", "torch", "torch"),
        ("standard (torch plain)", "torch", "torch"),
        ("standard (jax.nn)", "jax", "jax"),
        ("nystrom-32 (transformers)", "transformers", "torch"),
        ("nystrom-32 (nystrom-attention)", "nystrom-attention", "torch"),
    ]
    assert peers[-1].options == {"num_landmarks": 32}


def test_a_peer_that_is_missing_is_skipped_with_its_cure(monkeypatch):
    monkeypatch.setattr(cases, "version_of", lambda name: None if name == "linformer" else "1.0")
    ours = parse_methods("linformer,nystrom")
    peers, skipped = peers_of(ours, "linformer,nystrom-attention")
    assert [peer.label for peer in peers] == ["nystrom-64 (nystrom-attention)"]
    assert skipped == [
        "skipped linformer-256 (linformer): not installed; pip install linformer",
    ]


def test_an_unknown_peer_is_an_error():
    with pytest.raises(UserError, match="did you mean 'transformers'"):
        peers_of(parse_methods("nystrom"), "transformer")


def test_a_power_law_is_continued_exactly():
    points = [(512, 99.0), *((n, 3.0 * n**1.5) for n in (1024, 2048, 4096))]
    assert power_law(points, 16384) == pytest.approx(3.0 * 16384**1.5)
    assert power_law(points[1:3], 8192) == pytest.approx(3.0 * 8192**1.5)
    assert power_law(points[:1], 1024) is None


def test_a_power_law_is_of_all_long_lengths():
    """One slow call in the middle costs the prediction a fraction, not a factor of its own."""
    points = [(n, 1e-6 * n**2 * (2 if n == 4096 else 1)) for n in (1024, 2048, 4096, 8192)]
    assert power_law(points, 16384) == pytest.approx(1e-6 * 16384**2, rel=0.4)
    # With fewer than three of them the three longest count, and no others.
    short = [(256, 100.0), (512, 1.0), (1024, 2.0), (2048, 4.0)]
    assert power_law(short, 4096) == pytest.approx(8.0)


def test_what_is_known_of_a_method_bounds_its_exponent():
    # The committed times of exact attention, whose last two points alone give 4.8 s.
    points = [(1024, 0.0916), (2048, 0.891), (4096, 2.075)]
    assert power_law(points, 8192, least=2) == pytest.approx(8.3, rel=0.1)
    flat = [(n, 1.0) for n in (1024, 2048, 4096)]
    assert power_law(flat, 8192, least=2) == pytest.approx(16.0)
    assert power_law(flat, 8192, least=1) == pytest.approx(4.0)
    assert power_law(flat, 8192) == pytest.approx(1.0)
    steep = [(n, n**5.0) for n in (512, 1024, 2048)]  # noise, not length**5
    assert power_law(steep, 4096) == pytest.approx(1024**5 * 4**2)


def test_exact_attention_grows_by_a_power_more_than_the_others():
    benchmarks = ("module", "model", "fixed_tokens")
    assert [least_exponent(True, name) for name in benchmarks] == [2, 2, 1]
    assert [least_exponent(False, name) for name in benchmarks] == [1, 1, 0]


def test_the_filling_batch_is_a_power_of_two_within_both_bounds():
    assert filling_batch(seconds=0.01, largest=1000, target=1.0) == 64  # 100 calls in a second
    assert filling_batch(seconds=0.01, largest=20, target=1.0) == 16
    assert filling_batch(seconds=5.0, largest=20, target=1.0) == 1
