"""Tiny prepared data and configurations for tests that run the real loop."""

import numpy as np
import pytest

from lra.data.task_writer import TaskWriter
from lra.loop import train
from lra.programs import Programs, make_programs
from lra.settings import flatten, load_config
from lra.stopping import Stop
from lra.trainer import Trainer
from lra.warm_start import initial_state
from tests.attention_cases import overrides_of
from tests.lra.trainings import make_trainer

# One block of width 16 learns the data below in a few steps.
TINY = (
    "model.num_layers=1",
    "model.dim=16",
    "model.mlp_dim=16",
    "model.head_dim=8",
    "train.steps=12",
    "train.warmup_steps=3",
    "train.learning_rate=1e-2",
    "train.batch_size=8",
    "train.eval_every=5",
    "train.eval_batch_size=8",
)
# Programs of one device compile in half of the time that those of the eight virtual ones take.
ONE_DEVICE = ("mesh.seed=1", "mesh.data=1")
ALL_DEVICES = ("mesh.seed=0", "mesh.data=0")
# Settings that no compiled function of a trainer reads: the loop does, or shapes and shardings tell
# of them.
NOT_IN_PROGRAMS = (
    *("mesh.", "train.eval_every", "train.eval_batch_size", "train.steps_per_call"),
    *("train.checkpoint_seconds", "train.init_from", "data.holdout"),
    "model.attention.redraw_steps",
)
NOT_IN_MODELS = (*NOT_IN_PROGRAMS, "train.", "data.", "seeds")
TRACED_MODEL = Trainer._traced_model
COUNTS = {"train": 50, "validation": 13, "test": 21}


def write_listops(data_dir, *, seed=0, label="tiny"):
    """Short sequences whose label is their first symbol's id modulo 10."""
    rng = np.random.default_rng(seed)
    with TaskWriter(data_dir, "listops") as writer:
        for split, count in COUNTS.items():
            items = [
                rng.integers(1, 16, rng.integers(3, 15)).astype(np.uint8) for _ in range(count)
            ]
            writer.examples(split, [(item, item[0] % 10) for item in items])
        writer.finish(data=label, source="a test", counts=COUNTS, max_length=14)


def write_retrieval(data_dir):
    """Pairs of short documents; a pair belongs together if both start alike."""
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, 256, rng.integers(3, 15)).astype(np.uint8) for _ in range(20)]
    with TaskWriter(data_dir, "retrieval") as writer:
        writer.sequences("docs", documents)
        for split, count in COUNTS.items():
            pairs = rng.integers(0, 20, (count, 2)).astype(np.int32)
            labels = np.array([documents[a][0] % 2 == documents[b][0] % 2 for a, b in pairs])
            writer.array(f"{split}/pairs.npy", pairs)
            writer.array(f"{split}/labels.npy", labels.astype(np.int32))
        writer.finish(data="tiny", source="a test", counts=COUNTS, max_length=14)


def write_text(data_dir):
    """Short byte strings, of letters or of digits: the label says which."""
    rng = np.random.default_rng(0)
    counts = {split: COUNTS[split] for split in ("train", "test")}
    with TaskWriter(data_dir, "text") as writer:
        for split, count in counts.items():
            labels = rng.integers(0, 2, count)
            items = [
                rng.integers(48 + 49 * label, 58 + 49 * label, rng.integers(3, 15)).astype(np.uint8)
                for label in labels
            ]
            writer.examples(split, zip(items, labels, strict=True))
        writer.finish(
            data="tiny",
            source="a test",
            counts=counts,
            max_length=14,
            aliases={"validation": "test"},
        )


def write_pixels(data_dir, task, classes):
    """4 x 4 pixels, a quarter of them 0; the label is how high the mean is."""
    rng = np.random.default_rng(0)
    with TaskWriter(data_dir, task) as writer:
        for split, count in COUNTS.items():
            images = rng.integers(0, 256, (count, 16)) * (rng.random((count, 16)) > 0.25)
            labels = images.mean(1).argsort().argsort() * classes // count
            writer.examples(split, zip(images.astype(np.uint8), labels, strict=True))
        writer.finish(data="tiny", source="a test", counts=COUNTS, max_length=16)


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """Prepared data of the five tasks of the table."""
    folder = tmp_path_factory.mktemp("data")
    write_listops(folder)
    write_text(folder)
    write_retrieval(folder)
    write_pixels(folder, "image", 10)
    write_pixels(folder, "pathfinder", 2)
    return folder


@pytest.fixture(scope="session")
def tiny_config():
    """Build a tiny configuration for one device: `tiny_config(task, attention, *overrides)`."""

    def build(task="listops", attention="standard", *overrides):
        spec = f"configs/{task}.py:{attention}"
        return load_config(spec, (*TINY, *ONE_DEVICE, *overrides_of(attention), *overrides))

    return build


@pytest.fixture(scope="session")
def tiny_trainer(tiny_config, data_dir):
    """Build the trainer of such a configuration, on the tiny data."""

    def build(*arguments, **options):
        return make_trainer(tiny_config(*arguments), data_dir, **options)

    return build


@pytest.fixture(scope="session")
def made_programs():
    """The compiled functions of `shared_programs`, and the structures of their models."""
    return {}, {}


@pytest.fixture(scope="module")
def shared_programs(made_programs):
    """Trainers of the files that ask for it share those of their compiled functions that are equal.

    Each would trace, lower and compile its own otherwise. So that restored runs take part, they are
    put on one device. Not for tests that replace anything these functions call: they ask for
    `own_programs` as well.
    """
    made, structures = made_programs

    def settings_of(config, left_out=NOT_IN_PROGRAMS):
        settings = flatten(config) | {"seeds": len(config.seeds)}
        return repr([item for item in settings.items() if not item[0].startswith(left_out)])

    def shared(config, task, length, *, graphdef, plan, shardings, donate):
        own = make_programs(
            config,
            task,
            length,
            graphdef=graphdef,
            plan=plan,
            shardings=shardings,
            donate=donate,
        )
        of_all = settings_of(config), length, shardings, donate
        of_model = settings_of(config, (*NOT_IN_PROGRAMS, "train.")), *of_all[1:]
        uses = dict.fromkeys(Programs._fields, of_model) | {
            "init": of_all,
            "train": (*of_all, plan.parts, plan.buckets),
            "logits": (*of_model, plan.eval_buckets),
        }
        return Programs(
            *(made.setdefault((name, *key), getattr(own, name)) for name, key in uses.items())
        )

    def structure(trainer):
        buckets = trainer.plan.buckets
        key = (
            settings_of(trainer.config, NOT_IN_MODELS),
            trainer.length,
            buckets.packed,
            buckets.ends[0],
        )
        if key not in structures:
            structures[key] = TRACED_MODEL(trainer)
        return structures[key]

    def on_one_device(config, *arguments, **options):
        with config.unlocked():
            config.mesh.update(seed=1, data=1)
        return Trainer(config, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lra.trainer.make_programs", shared)
        patch.setattr("lra.restored.Trainer", on_one_device)
        patch.setattr(Trainer, "_traced_model", structure)
        yield


@pytest.fixture
def own_programs(monkeypatch):
    """Trainers have functions of their own, in a file whose trainers share them."""
    monkeypatch.setattr("lra.trainer.make_programs", make_programs)
    monkeypatch.setattr("lra.restored.Trainer", Trainer)
    monkeypatch.setattr(Trainer, "_traced_model", TRACED_MODEL)


@pytest.fixture(scope="module")
def held_out(tiny_config, data_dir, tmp_path_factory):
    """The folder of a run of two seeds, with untrained arrays and a held-out validation set."""
    workdir = tmp_path_factory.mktemp("held_out")
    config = tiny_config("listops", "performer", "seeds=(3, 5)", "data.holdout=0.2")
    assert train(config, workdir, data_dir) == 0
    return workdir


@pytest.fixture
def stop_after(monkeypatch):
    """Make `Stop.before` answer yes from its n-th question on."""

    def arrange(questions):
        asked = iter(range(10**9))

        def before(self, seconds):
            if next(asked) >= questions:
                self.reason = "a test"
            return self.reason is not None

        monkeypatch.setattr(Stop, "before", before)

    return arrange


@pytest.fixture
def first_seed_broken(monkeypatch):
    """Trainings whose first seed diverges at step 0."""

    def broken(trainer):
        state = initial_state(trainer)
        scale = state.params["encoder"]["norm"]["scale"]
        scale[...] = scale[...].at[0].set(np.inf)
        return state

    monkeypatch.setattr("lra.loop.initial_state", broken)
