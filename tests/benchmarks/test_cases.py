"""Names of contenders, their options and peers."""

import pytest

from benchmarks import cases
from benchmarks.cases import parse_methods, parse_widths, peers_of
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
    ("share", "shown"),
    [
        ("('heads','kv','layers')", " layerwise"),
        ("['layers','kv','heads']", " layerwise"),
        ("('heads',)", " headwise"),
        ("('kv','heads')", " key-value"),
        ("('kv',)", " share=('kv',)"),
        ("[[1]]", " share=[[1]]"),  # refused where the module is made
        ("3", " share=3"),
    ],
)
def test_levels_of_sharing_have_the_names_of_the_paper(share, shown):
    (contender,) = parse_methods(f"linformer:proj_dim=8:share={share}")
    assert contender.label == f"linformer-8{shown}"


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
