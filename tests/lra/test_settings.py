"""Configurations: every mistake is one line that names the cure; protocols are computed.

More mistakes are in tests/bad_inputs.py, where commands are given them.
"""

import math

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs import default
from lra import protocol, setting_values, settings
from lra.errors import UserError
from lra.tasks import TASKS

SPEC = "configs/listops.py:nystrom"


@pytest.mark.parametrize("attention", default.ATTENTIONS)
@pytest.mark.parametrize("task", TASKS)
def test_every_task_and_attention_loads_and_is_table3(task, attention):
    config = settings.load_config(f"configs/{task}.py:{attention}")
    assert config.task == task
    assert config.model.attention.name == attention
    assert protocol.protocol_of(config) == "table3"
    assert protocol.overrides_of(config) == {}


def test_the_first_pixel_is_not_read_where_black_is_padding():
    spec, overrides = "configs/pathfinder.py:linear", ["model.pooling=first"]
    with pytest.raises(UserError, match="would read a pixel that is nearly always black"):
        settings.load_config(spec, overrides)
    settings.load_config(spec, [*overrides, "data.zero_is_padding=False"])


def test_values_survive_json():
    config = settings.load_config(
        "configs/listops.py:linformer",
        ["seeds=(3, 1)", "model.attention.proj_dim=((1, 2), (3, 4))"],
    )
    again = settings.from_json(settings.to_json(config))
    assert again == config
    assert again.model.attention.proj_dim == ((1, 2), (3, 4))


def test_of_several_overrides_of_a_key_the_last_holds():
    config = settings.load_config(
        "configs/listops.py:linformer",
        [
            "seeds=(0, 1)",
            "model.attention.share=('kv', 'heads')",
            "train.steps=3",
            "seeds=(7,)",
            "model.attention.share=('layers',)",
            "train.steps=4",
        ],
    )
    assert config.seeds == (7,)
    assert config.model.attention.share == ("layers",)
    assert config.train.steps == 4


def test_an_override_that_is_replaced_is_checked_as_well():
    with pytest.raises(UserError, match="seeds is a tuple, not 3"):
        settings.load_config(SPEC, ["seeds=3", "seeds=(7,)"])


def test_overrides_reach_the_protocol():
    config = settings.load_config(SPEC, ["train.steps=2000", "model.attention.num_landmarks=32"])
    assert protocol.protocol_of(config) == (
        "changed: model.attention.num_landmarks=32, train.steps=2000"
    )
    assert protocol.overrides_of(config) == {
        "model.attention.num_landmarks": 32,
        "train.steps": 2000,
    }


def test_ways_of_execution_are_neutral():
    config = settings.load_config(
        SPEC,
        [
            "seeds=(5,)",
            "dtype=bfloat16",
            "matmul_precision=bfloat16",
            "mesh.data=2",
            "train.steps_per_call=3",
            "train.checkpoint_seconds=9",
        ],
    )
    assert protocol.protocol_of(config) == "table3"
    # A number format is part of what was computed, so rows with it are rows of their own.
    assert protocol.overrides_of(config) == {"dtype": "bfloat16", "matmul_precision": "bfloat16"}


@pytest.mark.parametrize(
    ("spec", "overrides", "expected"),
    [
        ("nowhere/listops.py", [], "no config file nowhere/listops.py"),
        ("listops", [], "no config file listops (did you mean 'configs/listops.py'?)"),
        (
            "configs/zzzz.py:nystrom",
            [],
            "no config file configs/zzzz.py (known: configs/",
        ),
        ("configs/default.py:nystrom", [], "sets no task; name that of a task"),
        ("nystrom", [], "no config file nystrom: name a task too, as in configs/listops.py:nystr"),
        ("evl:nystrom", [], "no config file evl (known: configs/image.py, configs/listops.py, "),
        ("eval.py:nystrom", [], "eval.py:nystrom has no get_config(attention); name a config file"),
        ("a:b/listops.py:nystrom", [], "the path of a config file has no colon"),
        (SPEC, ["train.init_from=caf\udce9"], "is no text in UTF-8; rename the folder"),
        (SPEC, ["train.init_from=a\0b"], "has a line break or other control character: 'a\\x00b'"),
        (SPEC, ["model.remat=\n1"], "--config.model.remat has a line break or other control"),
        (SPEC, ["model.remat=a: b"], "config key model.remat is True or False, not 'a: b'"),
        (
            SPEC,
            ["train.weight_decay=1e39", "train.learning_rate=0"],
            "weight_decay must be at most",
        ),
        (
            SPEC,
            ["model.attention.proj_dim=3"],
            "unknown config key 'model.attention.proj_dim' (an option of linformer)",
        ),
        (
            SPEC,
            ["train.zzz=1"],
            "unknown config key 'train.zzz' (known: train.batch_size, train.ch",
        ),
        (SPEC, ["train.learning_rate=high"], "train.learning_rate=high"),
        (SPEC, ["seeds=(0, 'a')"], "seeds holds values of type int, not 'a' (str)"),
        (SPEC, ["seeds=(0, True)"], "seeds holds values of type int, not True (bool)"),
        (SPEC, ["seeds=[3, 4]"], '--config.seeds="(3, 4)"'),
        (SPEC, ["seeds={[]: 1}"], "seeds is a tuple, not '{[]: 1}'"),
        (SPEC, ["seeds=many"], "seeds is a tuple, not 'many': --config.seeds=\"(0,)\""),
        (SPEC, ["model.head_dim=0"], "model.head_dim must be at least 1"),
        (SPEC, ["model.attention.num_landmarks=0"], "num_landmarks must be at least 1, not 0"),
        (SPEC, ["model.attention.conv_kernel=-1"], "conv_kernel must be a number from 0 on"),
        (SPEC, ["model.dropout=1.0"], "model.dropout must be at least 0 and less than 1"),
        (SPEC, ["train.max_grad_norm=inf"], "train.max_grad_norm must be a number from 0 on"),
        (
            "configs/listops.py:linformer",
            ["model.attention.share=kv,heads"],
            "not 'kv,heads': --config.model.attention.share=\"('kv', 'heads')\"",
        ),
        (
            SPEC,
            ["train.learning_rate=1e31"],
            "train.learning_rate must be at most 1e+30, not 1e+31",
        ),
        (SPEC, ["train.learning_rate=0.1", "train.weight_decay=11.0"], "0.1 * 11.0 takes more"),
        (SPEC, ["train.steps_per_call=513"], "train.steps_per_call = 513 is more than 512"),
        (SPEC, ["data.holdout=1"], "data.holdout must be at least 0 and less than 1"),
        ("configs/listops.py:linformer", ["model.attention.proj_dim=(8, 'a')"], "not 'a'"),
        (
            "configs/listops.py:linformer",
            ["model.attention.proj_dim=0"],
            "positive integers, not 0",
        ),
        ("configs/listops.py:linformer", ["model.attention.share=('kv', 1)"], "not 1 (int)"),
        *(
            ("configs/listops.py:linformer", [f"model.attention.proj_dim={value}"], expected)
            for value, expected in (
                ("()", "() has 0 entries for model.num_layers = 2 layers"),
                ("(8, 8, 8)", "(8, 8, 8) has 3 entries for model.num_layers = 2 layers"),
                ("(8, ())", "() is not one size for each of model.num_heads = 2 heads"),
                ("((8, 8), (8, 8, 8))", "(8, 8, 8) is not one size for each of"),
                ("(((8, 8), 8), 8)", "((8, 8), 8) is not one size for each of"),
            )
        ),
    ],
)
def test_mistakes_are_named(spec, overrides, expected):
    with pytest.raises(UserError) as caught:
        settings.load_config(spec, overrides)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


OURS = ("standard", "nystrom", "linformer", "performer", "reformer", "longformer", "linear")


@pytest.mark.parametrize("attention", OURS)
def test_no_number_is_negative_and_few_integers_are_zero(attention):
    may_be_zero = {"conv_kernel", "redraw_steps", "warmup_steps", "steps_per_call"}
    may_be_zero |= {"checkpoint_seconds", "seed", "data"}
    spec = f"configs/listops.py:{attention}"
    for key, value in settings.flatten(settings.load_config(spec)).items():
        refused = {int: [-1, 0], float: [-1.0]}.get(type(value), [])
        if key.rpartition(".")[2] in may_be_zero:
            refused = [-1]
        for number in refused:
            with pytest.raises(UserError, match=f"^{key} .*, not {number}$"):
                settings.load_config(spec, [f"{key}={number}"])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("c = listops.get_config(attention); c.model.attention.name = 'x'; return c", "'x'"),
        ("exit(0)", r"mine\.py.*SystemExit: 0"),
    ],
)
def test_a_config_file_of_ones_own_that_makes_no_configuration_is_refused(tmp_path, body, expected):
    path = tmp_path / "mine.py"
    imports = "from configs import listops\n"
    path.write_text(f"{imports}def get_config(attention='standard'):\n    {body}\n")
    with pytest.raises(UserError, match=expected):
        settings.load_config(str(path))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("seeds", "(0.2, 0.7)", "seeds holds values of type int, not 0.2 (float)"),
        ("seeds", "tuple(numpy.arange(3))", "(int64)"),
        ("seeds", "(True,)", "seeds holds values of type int, not True (bool)"),
        ("train.steps", "None", "train.steps is of type int, not None (NoneType)"),
        ("train.steps", "True", "train.steps is of type int, not True (bool)"),
        ("train.learning_rate", "None", "train.learning_rate is of type float, not None"),
        ("train.init_from", "None", "train.init_from is of type str, not None"),
        ("train.init_from", "'a\\nb'", "has a zero byte or a line break"),
        ("model.remat", "None", "model.remat is of type bool, not None"),
        ("data", "dict(holdout=0, zero_is_padding='no')", "is of type bool, not 'no' (str)"),
    ],
)
def test_values_of_a_config_file_have_the_types_of_the_defaults(tmp_path, key, value, expected):
    path = tmp_path / "mine.py"
    body = f"c = listops.get_config(attention); c.{key} = {value}; return c"
    imports = "import numpy\nfrom configs import listops\n"
    path.write_text(f"{imports}def get_config(attention='standard'):\n    {body}\n")
    with pytest.raises(UserError) as caught:
        settings.load_config(str(path))
    assert expected in str(caught.value)


def test_what_linformer_shares_is_a_set():
    one, other = (
        settings.load_config("configs/listops.py:linformer", [f"model.attention.share={share}"])
        for share in ("('kv', 'layers')", "('layers', 'kv', 'kv')")
    )
    assert one == other
    assert protocol.protocol_of(other) == "table3"


def test_zero_has_no_sign():
    one, other = (
        settings.load_config("configs/listops.py:performer", [f"model.attention.epsilon={zero}"])
        for zero in ("0.0", "-0.0")
    )
    assert settings.to_json(one) == settings.to_json(other)
    assert protocol.protocol_of(other) == "changed: model.attention.epsilon=0.0"


VALUES = st.one_of(
    st.sampled_from(
        ["0", "-1", "2.5", "1e400", "nan", "None", "True", "()", "(1,)", "('a',)", "\n1", "a: b"]
    ),
    st.sampled_from(["float32", "mean", "((1, 2), (3, 4))", "[1]", "{}", "1_0", "0x10", " 3 "]),
    st.integers().map(str),
    st.text(),
)


@given(st.data())
@hypothesis.settings(max_examples=150, deadline=None)
def test_any_text_as_a_value_is_refused_or_survives_json(data):
    spec = f"configs/listops.py:{data.draw(st.sampled_from(sorted(default.ATTENTIONS)))}"
    key = data.draw(st.sampled_from(sorted(settings.flatten(settings.load_config(spec)))))
    try:
        config = settings.load_config(spec, [f"{key}={data.draw(VALUES)}"])
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    again = settings.from_json(settings.to_json(config))
    assert again == config
    overrides = [f"{key}={value}" for key, value in protocol.overrides_of(config).items()]
    overrides += [f"{key}={settings.flatten(config)[key]}"]  # also of neutral keys
    assert settings.load_config(spec, overrides) == config


def test_what_a_config_file_prints_is_no_output(tmp_path, capsys):
    path = tmp_path / "loud.py"
    imports = "from configs import listops\n"
    body = "    print('rm -r .')\n    return listops.get_config(attention)\n"
    path.write_text(f"{imports}def get_config(attention='standard'):\n{body}")
    settings.load_config(f"{path}:nystrom")
    said = capsys.readouterr()
    assert (said.out, "rm -r ." in said.err) == ("", True)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_option_of_an_added_attention_is_a_finite_number(value):
    flat = settings.flatten(settings.load_config(SPEC))
    with pytest.raises(UserError, match=r"model.attention.bias must be a finite number, not"):
        setting_values.check_values(flat | {"model.attention.bias": value})


def test_config_files_do_not_see_each_other(tmp_path):
    settings.load_config(SPEC)
    (tmp_path / "mine.py").write_text("")
    with pytest.raises(UserError, match=r"mine\.py has no get_config"):
        settings.load_config(str(tmp_path / "mine.py"))


def test_names_are_refused_before_models_are_made_exactly_if_models_refuse_them():
    from models import encoder, heads
    from models.attention import linformer, performer, standard

    assert setting_values.CHOICES["model.positions"] == encoder.POSITIONS
    assert setting_values.CHOICES["model.pooling"] == heads.POOLINGS
    listed = {
        "standard": {"implementation": standard.IMPLEMENTATIONS},
        "linformer": {"projection": linformer.PROJECTIONS, "share": linformer.SHARES},
        "performer": {"kernel": performer.KERNELS},
    }
    assert setting_values.CHOICES_OF | listed == setting_values.CHOICES_OF
    for key, value in (("model.pooling", "foo"), ("model.attention.num_landmarks", "0")):
        with pytest.raises(UserError, match=key):
            settings.load_config(SPEC, [f"{key}={value}"])
    refused = {"performer:kernel": "elu", "linformer:share": "('kv', 'foo')"}
    for option, value in refused.items():
        name, option = option.split(":")
        with pytest.raises(UserError, match=f"{option} must be one of .* not '(elu|foo)'"):
            settings.load_config(f"configs/text.py:{name}", [f"model.attention.{option}={value}"])


def test_the_schema_has_an_option_for_every_one_of_an_attention():
    from models.attention import ATTENTIONS, options_of

    assert set(default.ATTENTIONS) == set(ATTENTIONS)
    for name, options in default.ATTENTIONS.items():
        assert options == options_of(name)
        for default_value in options.values():  # others cannot be set by a flag
            assert type(default_value) in (bool, int, float, str, tuple)
            assert default_value != ()


@pytest.mark.parametrize(
    ("option", "value"),
    [("share", True), ("proj_dim", 0.5), ("window", 0), ("epsilon", 1.0), ("redraw_steps", -1)],
)
def test_checks_of_an_option_are_of_its_attention_alone(option, value, monkeypatch):
    """Another attention may have an option of the same name that means something else."""
    monkeypatch.setitem(default.ATTENTIONS, "linear", {option: value})
    config = settings.load_config("configs/text.py:linear")
    assert config.model.attention[option] == value


def test_configs_are_found_from_any_folder(tmp_path, monkeypatch):
    here = settings.load_config(SPEC)
    monkeypatch.chdir(tmp_path)
    assert settings.load_config(SPEC) == here
    with pytest.raises(UserError, match="did you mean 'configs/listops"):
        settings.load_config("configs/listop.py:nystrom")
