"""What the devices of a mesh say to each other, read from the compiled programs."""

import collections
import re

import chex
import jax
import numpy as np
import pytest

from lra import sharding
from tests.attention_cases import SMALL
from tests.lra.conftest import ALL_DEVICES
from tests.suites import slow_but

pytestmark = pytest.mark.usefixtures("shared_programs")

COMMUNICATION = (
    "all-reduce|all-gather|all-to-all|reduce-scatter|ragged-all-to-all|collective-permute|"
    "collective-broadcast"
)
# `%name = TYPE all-reduce(...), ..., replica_groups=GROUPS, ...`; a type may be a tuple.
CALL = re.compile(rf"= (\(.*?\)|\S+) ({COMMUNICATION})(?:-start)?\(")
GROUPS = re.compile(r"replica_groups=(\S+(?: device_ids=\S+)?(?: \{[^}]*\})?)")


def compiled_step(trainer):
    """The compiled training call."""
    arguments = trainer.train_arguments(trainer.abstract_state(), 0, 3)
    return trainer.programs.train.lower(*arguments).compile()


def communication(text):
    """Of every collective: its name, the number formats it carries, and its groups of devices."""
    found = []
    for line in text.splitlines():
        call = CALL.search(line)
        if call:
            formats = collections.Counter(re.findall(r"([a-z]+\d*)\[", call[1]))
            found.append((call[2], set(formats), groups(GROUPS.search(line)[1])))
    return found


def groups(text):
    """Replica groups as sets of devices, from each of the ways XLA writes them."""
    if text.startswith("{"):  # {{0,1},{2,3}}
        return {frozenset(map(int, g.split(","))) for g in re.findall(r"\{([\d,]+)\}", text)}
    if text.startswith("["):  # [2,2]<=[4] or [2,2]<=[2,2]T(1,0)
        parts = re.match(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
        shape, order, axes = parts.groups()
        devices = np.arange(np.prod(numbers(order))).reshape(numbers(order))
        rows = devices.transpose(numbers(axes) if axes else None).reshape(numbers(shape))
    else:  # mesh['axis_0'=2,'axis_1'=2] {'axis_1'}, or with device_ids=([2,2]T(1,0)) before {
        pattern = r"mesh\[(.*?)\](?:, device_ids=\(\[([\d,]+)\]T\(([\d,]+)\)\))? \{(.*?)\}"
        mesh, order, axes, chosen = re.match(pattern, text).groups()
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", mesh))
        along = [list(sizes).index(name) for name in re.findall(r"'(\w+)'", chosen)]
        devices = np.arange(np.prod(numbers(sizes.values())))
        if order:
            devices = devices.reshape(numbers(order)).transpose(numbers(axes))
        devices = devices.reshape(numbers(sizes.values()))
        rows = np.moveaxis(devices, along, range(-len(along), 0))
        rows = rows.reshape(-1, np.prod([devices.shape[axis] for axis in along]))
    return {frozenset(row.tolist()) for row in rows}


def numbers(values):
    return [int(value) for value in (values.split(",") if isinstance(values, str) else values)]


def test_groups_are_read():
    expected = {frozenset({0, 1}), frozenset({2, 3})}
    for text in ("{{0,1},{2,3}},", "[2,2]<=[4],", "mesh['a'=2,'b'=2,'c'=1] {'b'}"):
        assert groups(text) == expected
    across = {frozenset({0, 2}), frozenset({1, 3})}
    transposed = "mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'},"
    for text in ("[2,2]<=[2,2]T(1,0)", "mesh['a'=2,'b'=2] {'a'}", transposed):
        assert groups(text) == across


SEED_GROUPS = {frozenset(range(4)), frozenset(range(4, 8))}


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        (("seed",), {frozenset({index, index + 4}) for index in range(4)}),
        (("data",), SEED_GROUPS),
        (("seed", "data"), {frozenset(range(8))}),
    ],
)
def test_hosts_connect_in_each_group_of_the_mesh(axes, expected):
    """Before they compile, which takes some of them longer than others wait."""
    mesh = sharding.make_mesh(jax.devices(), 2, 4)
    program, ones = sharding.sum_over(mesh, axes)
    assert program(ones) == ones.size
    text = program.lower(ones).compile().as_text()
    assert communication(text) == [("all-reduce", {"s32"}, expected)]


ATTENTIONS = slow_but(("nystrom",), SMALL)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_eight_devices_add_up_gradients_once_and_learn_as_one(tiny_trainer, attention):
    trainer = tiny_trainer("listops", attention, "seeds=(0, 1)", *ALL_DEVICES)
    assert dict(trainer.shardings.mesh.shape) == {"seed": 2, "data": 4}
    step = compiled_step(trainer)
    assert communication(step.as_text()) == [("all-reduce", {"f32"}, SEED_GROUPS)]
    state, metrics = step(*trainer.train_arguments(trainer.init(), 0, 3))
    one = tiny_trainer("listops", attention, "seeds=(0, 1)")
    expected, expected_metrics = one.train(one.init(), 0, 3)
    np.testing.assert_allclose(metrics.loss, expected_metrics.loss, atol=1e-5)
    chex.assert_trees_all_close(
        jax.device_get(state.params), jax.device_get(expected.params), atol=1e-4, rtol=1e-4
    )


@pytest.mark.slow
def test_what_a_model_does_on_a_gpu_needs_no_more(tiny_trainer, monkeypatch, own_programs):
    """By the program for CPUs: the same code divides it among devices."""
    monkeypatch.setattr("models.embedding.this_backend", lambda: "gpu")
    trainer = tiny_trainer("listops", "linear", "seeds=(0, 1)", *ALL_DEVICES)
    found = communication(compiled_step(trainer).as_text())
    assert found == [("all-reduce", {"f32"}, SEED_GROUPS)]


@pytest.mark.slow
def test_pairs_and_clipping_need_no_more(tiny_trainer):
    overrides = ("train.max_grad_norm=1.0", *ALL_DEVICES)
    trainer = tiny_trainer("retrieval", "standard", *overrides)
    found = communication(compiled_step(trainer).as_text())
    assert [name for name, *_ in found] == ["all-reduce"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attention", "parts"), [("nystrom", 1), ("standard", 2), ("linformer", 1), ("reformer", 1)]
)
def test_packing_needs_no_more(tiny_trainer, monkeypatch, attention, parts):
    monkeypatch.setattr("lra.plan._MIN_PADDED", 1)
    monkeypatch.setattr("lra.plan._PACKED_STEP", 2)
    own = "seeds=(0, 1)", f"train.microbatches={parts}"
    trainer = tiny_trainer("pathfinder", attention, *own, *ALL_DEVICES)
    assert trainer.plan.buckets.packed
    step = compiled_step(trainer)
    assert communication(step.as_text()) == [("all-reduce", {"f32"}, SEED_GROUPS)]
    _, metrics = step(*trainer.train_arguments(trainer.init(), 0, 3))
    one = tiny_trainer("pathfinder", attention, *own)
    _, expected = one.train(one.init(), 0, 3)
    np.testing.assert_allclose(metrics.loss, expected.loss, atol=1e-5)


def _reachable(computations, names):
    """The computations that these call, directly or not, and they themselves."""
    found, todo = set(), [name for name in names if name in computations]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += [n for n in re.findall(r"%([\w.-]+)", computations[name]) if n in computations]
    return found


@pytest.mark.parametrize(
    ("task", "attention"),
    slow_but(
        [("listops", "linear")],
        [("listops", "linear"), ("listops", "standard"), ("retrieval", "nystrom")],
    ),
)
def test_accumulation_adds_up_after_the_last_part(tiny_trainer, task, attention):
    overrides = ("seeds=(0, 1)", "train.microbatches=2")
    trainer = tiny_trainer(task, attention, *overrides, *ALL_DEVICES)
    assert dict(trainer.shardings.mesh.shape) == {"seed": 2, "data": 4}
    step = compiled_step(trainer)
    assert communication(step.as_text()) == [("all-reduce", {"f32"}, SEED_GROUPS)]
    computations = {
        re.match(r"\s*(?:ENTRY )?%?([\w.-]+)", text)[1]: text
        for text in re.split(r"\n\n", step.as_text())
        if text.rstrip().endswith("}")
    }
    loops = re.findall(r' while\(.*?body=%?([\w.-]+).*?known_trip_count":{"n":"2"', step.as_text())
    inside = [computations[name] for name in _reachable(computations, loops)]
    assert any(" dot(" in text or "__ynn" in text or "dot_general" in text for text in inside)
    assert not any(communication(text) for text in inside)
    state, metrics = step(*trainer.train_arguments(trainer.init(), 0, 3))
    one = tiny_trainer(task, attention, *overrides)
    expected, expected_metrics = one.train(one.init(), 0, 3)
    np.testing.assert_allclose(metrics.loss, expected_metrics.loss, atol=1e-5)
    chex.assert_trees_all_close(
        jax.device_get(state.params), jax.device_get(expected.params), atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize(
    "attention",
    ["linear", *(pytest.param(name, marks=pytest.mark.slow) for name in ("nystrom", "linformer"))],
)
def test_bfloat16_adds_up_once_in_float32(tiny_trainer, attention):
    trainer = tiny_trainer("listops", attention, "dtype=bfloat16", *ALL_DEVICES)
    found = communication(compiled_step(trainer).as_text())
    assert [(name, formats) for name, formats, _ in found] == [("all-reduce", {"f32"})]


def test_seeds_on_devices_of_their_own_say_nothing(tiny_trainer):
    seeds = f"seeds={tuple(range(8))}"
    trainer = tiny_trainer("listops", "linear", seeds, *ALL_DEVICES)
    assert dict(trainer.shardings.mesh.shape) == {"seed": 8, "data": 1}
    assert communication(compiled_step(trainer).as_text()) == []


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_an_evaluation_call_says_nothing(tiny_trainer, attention):
    trainer = tiny_trainer("listops", attention, "seeds=(0, 1)", *ALL_DEVICES)
    state = trainer.abstract_state()
    run = trainer.new_evaluation(state.params, state.rest, "validation")
    text = trainer.programs.logits.lower(*run.arguments(2)).compile().as_text()
    assert communication(text) == []


def test_scores_gather_the_logits_once(tiny_trainer):
    trainer = tiny_trainer("listops", "linear", "seeds=(0, 1)", *ALL_DEVICES)
    state = trainer.abstract_state()
    run = trainer.new_evaluation(state.params, state.rest, "validation")
    text = trainer.programs.scores.lower(*run.score_arguments).compile().as_text()
    calls = filter(None, map(CALL.search, text.splitlines()))
    assert {call[2] for call in calls} == {"all-gather"}
    assert " while(" not in text
