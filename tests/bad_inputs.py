"""What users and accidents do to the commands: each case with the words that name its cause."""

from collections.abc import Callable

from tests import bad_raw_files, bad_sweeps
from tests.small_world import (
    TRAIN,
    Case,
    config,
    cut,
    each_checkpoint,
    edit_json,
    flip,
    link,
    remove,
    write,
)

NYSTROM = "train.py --config=configs/listops.py:nystrom --data_dir=data --workdir=new"
STANDARD = "train.py --config=configs/listops.py:standard --data_dir=data --workdir=new"
LINFORMER = "train.py --config=configs/listops.py:linformer --data_dir=data --workdir=new"
MINE = "train.py --config=mine.py --data_dir=data --workdir=new"
EVAL = "eval.py --workdir=run --data_dir=data"


def cases() -> list[Case]:
    """All of them."""
    groups: tuple[Callable[[], list[Case]], ...] = (
        _flags,
        _values,
        _config_files,
        _prepared_data,
        _workdirs,
        _checkpoints,
        _evaluation,
        _analysis,
        bad_raw_files.cases,
        _inspect,
        _report,
        bad_sweeps.cases,
    )
    return [case for group in groups for case in group()]


def _flags() -> list[Case]:
    return [
        Case("train.py", "required: --config"),
        Case("train.py --config=configs/listops.py", "--workdir=DIR is needed"),
        Case("train.py --confg=configs/listops.py", "did you mean '--config'?"),
        Case(f"{NYSTROM} more", "unrecognized arguments: more"),
        Case(f"{NYSTROM} --distributed", "give --coordinator_address, --num_processes"),
        Case(f"{NYSTROM} --budget_minutes=-1", "'-1' is not a positive number of minutes"),
        Case(f"{NYSTROM} --budget_minutes=nan", "'nan' is not a positive number of minutes"),
        Case(
            f"{NYSTROM} --budget_minutes=soon",
            "--budget_minutes: 'soon' is not a positive number of minutes",
        ),
        Case(f"{NYSTROM} --config.train.steps", "needs a value"),
        Case(f"{NYSTROM} --config.trian.steps=3", "did you mean 'train.steps'?"),
        Case(f"{NYSTROM} --config.seed=1", "did you mean 'seeds'?"),
        Case(f"{NYSTROM} --config.train.lr=1", "did you mean 'train.learning_rate'?"),
        Case(f"{NYSTROM} --train.steps=3", "did you mean '--config.train.steps'?"),
        Case(f"{NYSTROM} --config.task=text", "task comes from --config"),
        Case(f"{NYSTROM} --config.model.attention.causal=True", "no attention here is causal"),
        Case(f"{NYSTROM} --config.model.attention.proj_dim=8", "unknown config key"),
        Case(f"{NYSTROM} --num_processes=2", "several hosts need --coordinator_address"),
        Case(
            f"{NYSTROM} --coordinator_address=a:1 --num_processes=2 --process_id=2",
            "--process_id=2 is not from 0 to",
        ),
        Case(
            f"{NYSTROM} --debug_nans --coordinator_address=localhost:1 --num_processes=2 "
            "--process_id=0",
            "--debug_nans works on one host",
        ),
        Case(
            f"{NYSTROM} --coordinator_address=a --num_processes=2 --process_id=0",
            "--coordinator_address=a is not HOST:PORT",
        ),
        Case(
            f"{NYSTROM} --coordinator_address=localhost:99999 --num_processes=2 --process_id=0",
            "--coordinator_address=localhost:99999 is not HOST:PORT",
        ),
        Case(
            f"{NYSTROM} --coordinator_address=no.invalid:1234 --num_processes=2 --process_id=1",
            "--coordinator_address: no host no.invalid",
        ),
        Case("train.py --config=configs/lstops.py --workdir=new", "configs/listops.py"),
        Case("train.py --config=configs/listops.py:nystrm --workdir=new", "'nystrom'"),
        Case("train.py --config=configs --workdir=new", "configs is a folder"),
    ]


def _values() -> list[Case]:
    return [
        *(
            Case(f'{NYSTROM} --config."{override}"', cause)
            for override, cause in (
                ("model.attention=nystrom", "comes from --config=configs/TASK.py:ATTENTION"),
                ("seeds=3", '--config.seeds="(3,)"'),
                ("seeds=()", "seeds is empty"),
                ("seeds=(1, 1)", "names a seed twice"),
                ("seeds=(-1,)", "a seed is an integer from 0"),
                ("seeds=(0, 1.5)", "not 1.5 (float)"),
                ("train.steps=ten", "train.steps=ten"),
                ("train.steps=2.5", "train.steps=2.5"),
                ("train.steps=0", "train.steps must be at least 1"),
                ("train.batch_size=-8", "train.batch_size must be at least 1"),
                ("train.microbatches=5", "is not a multiple of train.microbatches"),
                ("train.learning_rate=nan", "must be a number from 0 on"),
                ("train.max_grad_norm=-1", "must be a number from 0 on"),
                ("train.steps_per_call=100000", "is more than"),
                ("dtype=float16", "dtype must be one of float32, bfloat16"),
                ("matmul_precision=high", "matmul_precision must be one of"),
                ("model.num_heads=3", "is not model.dim = 64"),
                ("model.dropout=1.5", "less than 1"),
                ("model.remat=perhaps", "model.remat is True or False, not 'perhaps'"),
                ("train.warmup_steps=3000000000", "must be at most 2,147,483,647"),
                ("model.pooling=median", "model.pooling must be one of padded_mean, mean,"),
                ("model.positions=absolute", "model.positions must be one of learned, sinus"),
                ("model.attention.num_landmarks=0", "num_landmarks"),
                ("model.attention.num_landmarks=5000", "num_landmarks"),
                ("data.zero_is_padding=True", "data.zero_is_padding is for pixels"),
                ("mesh.seed=3", "mesh.seed=3"),
                ("mesh.data=999", "mesh.seed=1, mesh.data=999 needs 999 devices, there are 8"),
            )
        ),
        Case(f"{STANDARD} --config.data.holdout=0.99999", "leaves a split empty"),
        Case(f"{STANDARD} --config.train.init_from=nowhere", "nowhere holds no run"),
        Case(f"{LINFORMER} --config.model.attention.share=kv", "=\"('kv',)\""),
        Case(f"{LINFORMER} --config.model.attention.share=\"('rows',)\"", "not 'rows'"),
        Case(f"{LINFORMER} --config.model.attention.proj_dim='(8, 8, 8)'", "has 3 entries"),
        Case(f"{LINFORMER} --config.model.attention.projection=magic", "not 'magic'"),
    ]


def _config_files() -> list[Case]:
    return [
        Case(MINE, "division by zero", config("return 1 / 0")),
        Case(MINE, "returns a dict, not a ConfigDict", config("return {}")),
        Case(MINE, "returns a NoneType, not a ConfigDict", config("pass")),
        Case(MINE, "no config file mine.py (known: configs/", link("mine.py", "nothing.py")),
        Case(MINE, "did you mean 'train.steps'", config("c.train.stepz = 3; return c")),
        Case(MINE, "lacks the key train.steps", config("del c.train['steps']; return c")),
        Case(MINE, "sets no task", config("return default.get_config(attention)")),
        Case(MINE, "mine.py", write("mine.py", "def get_config(")),
        Case(MINE, "mine.py", write("mine.py", "x = 1\n")),
        Case(MINE, "mine.py", write("mine.py", b"\xff\x00\xfe")),
    ]


def _prepared_data() -> list[Case]:
    tokens, manifest = "data/listops/train/tokens.npy", "data/listops/manifest.json"
    return [
        Case(f"{NYSTROM} --data_dir=raw", "python -m lra.data.prepare listops --data_dir=raw"),
        Case(f"{NYSTROM} --data_dir=mine.py", "--data_dir: mine.py is a file, not a folder"),
        Case(
            f"{NYSTROM} --data_dir=data/listops", "prepared data of one task; say --data_dir=data"
        ),
        Case(
            "lra.data.prepare listops --data_dir=data/listops",
            "prepared data of one task; say --data_dir=data",
        ),
        Case(f"{NYSTROM} --data_dir=a", "a is a loop of symbolic links", link("a", "a")),
        Case(NYSTROM, "tokens.npy differs from its manifest", flip(tokens)),
        Case(NYSTROM, "tokens.npy has 100 bytes, its manifest says", cut(tokens)),
        Case(NYSTROM, "tokens.npy is missing", remove(tokens)),
        Case(NYSTROM, "labels.npy differs", flip("data/listops/test/labels.npy")),
        Case(NYSTROM, "was edited or damaged", edit_json(manifest, data="official")),
        Case(NYSTROM, "has format 7, this version reads 1", edit_json(manifest, format=7)),
        Case(NYSTROM, "is not a manifest", cut(manifest)),
        Case(NYSTROM, "is not a manifest", write(manifest, "[]")),
    ]


def _workdirs() -> list[Case]:
    return [
        Case(f"{TRAIN} --workdir=mine.py", "--workdir: mine.py is a file, not a folder"),
        Case(f"{TRAIN} --workdir=mine.py/run", "mine.py is a file, not a folder"),
        Case(rf"{TRAIN} --workdir='a\b'", r"a\b has a backslash, which checkpoints do not keep"),
        Case(f"{TRAIN} --workdir=caf\udce9", r"caf\udce9' is no text in UTF-8"),
        Case(f"{TRAIN} --workdir=/proc/new", "cannot write to workdir /proc/new"),
        Case(f"{TRAIN} --workdir=data/listops", "data/listops holds prepared data; choose another"),
        Case(TRAIN, "run/evaluations is not a folder", write("run/evaluations", "")),
        Case(f"{TRAIN} --config.model.dropout=0.2", "model.dropout (0.1 there, 0.2 now)"),
        Case(TRAIN, "config.json is damaged", cut("run/config.json")),
        Case(TRAIN, "config.json is damaged", write("run/config.json", "[1]")),
        Case(TRAIN, "config.json is damaged", write("run/config.json", "[" * 100_000)),
        Case(TRAIN, "config.json is damaged or was edited", flip("run/config.json")),
        Case(TRAIN, "run.json is damaged", write("run/run.json", '{"data_dir": 1}')),
        Case(TRAIN, "holds a run on other data", edit_json("run/run.json", data_sha256="0" * 64)),
        Case(TRAIN, "line 1: not a row", write("run/rows.jsonl", '{"schema": 1}\n')),
    ]


def _checkpoints() -> list[Case]:
    none = "no undamaged checkpoint in"
    return [
        Case(TRAIN, none, each_checkpoint(flip, "state/**/*"), notes=True),
        Case(TRAIN, none, each_checkpoint(cut, "state/**/*"), notes=True),
        Case(TRAIN, none, each_checkpoint(flip, "progress/*"), notes=True),
        Case(TRAIN, none, each_checkpoint(remove, "state/_METADATA"), notes=True),
        Case(EVAL, none, each_checkpoint(flip, "state/**/*"), notes=True),
    ]


def _evaluation() -> list[Case]:
    return [
        Case("eval.py", "required: --workdir"),
        Case("eval.py --workdir=nowhere", "nowhere holds no run"),
        Case(
            "eval.py --workdir=.", "no config.json in it; name a folder in it that holds one, such"
        ),
        Case("eval.py --workdir=mine.py", "--workdir: mine.py is a file, not a folder"),
        Case(f"{EVAL} --split=dev", "invalid choice: 'dev'"),
        Case(f"{EVAL} --data_dir=raw", "no prepared listops in raw"),
        Case(f"{EVAL} --eval_batch_size={2**62}", "eval_batch_size must be at most 2,147,483,647"),
        Case(EVAL, "no checkpoint in run", remove("run/checkpoints")),
        Case(EVAL, "config.json is damaged", cut("run/config.json")),
        Case(EVAL, "config.json is damaged or was edited", flip("run/config.json")),
        Case(EVAL, "run.json is damaged", cut("run/run.json")),
        Case(EVAL, "run.json is damaged or was edited", flip("run/run.json")),
        Case(EVAL, "is not the data", edit_json("run/run.json", data_sha256="0" * 64)),
        Case(f"{EVAL} --predictions=nowhere/p.npz", "cannot write nowhere/p.npz"),
        Case(f"{EVAL} --predictions=results", "cannot write results"),
        Case(f"{EVAL} --predictions=run/config.json", "run/config.json does not end in .npz"),
    ]


def _analysis() -> list[Case]:
    command = "lra.analysis --workdir=run --data_dir=data"
    return [
        Case("lra.analysis", "--workdir=DIR of a training is needed"),
        Case("lra.analysis --workdir=nowhere", "nowhere holds no run"),
        Case(f"{command} --out=mine.py", "--out: mine.py is a file, not a folder"),
        Case(
            "lra.analysis --random --out=out --length=16 --examples=1 --methods=linear",
            "cannot write to --out=out",
            write("out/figures", ""),
        ),
        Case(f"{command} --examples=0", "--examples: '0' is not a positive integer"),
        Case(f"{command} --methods=magic", "magic"),
        Case(f"{command} --sizes=many", "--sizes: 'many' is not a positive integer"),
        Case(f"{command} --seed=9", "9"),
        Case("lra.analysis --random --out=new --length=9999999", "choose a smaller --length"),
        Case(command, "no checkpoint in run", remove("run/checkpoints")),
    ]


def _inspect() -> list[Case]:
    command = "lra.data.inspect"
    return [
        Case(command, "required: TASK"),
        Case(f"{command} listops --data_dir=raw", "no prepared listops in raw"),
        Case(f"{command} listops --data_dir=data --examples=-1", "is negative"),
        Case(f"{command} listops --data_dir=data --out=a.png", "listops has no pictures"),
        Case(f"{command} image --data_dir=data --out=a.jpg", "does not end in .png"),
        Case(f"{command} image --data_dir=data --out=nowhere/a.png", "nowhere/a.png"),
        Case(f"{command} image --data_dir=data --out=a.png --examples=0", "--examples=0 leaves"),
        Case(f"{command} image --data_dir=data", "differs", flip("data/image/train/tokens.npy")),
    ]


def _report() -> list[Case]:
    command, rows = "lra.report results/accuracy.jsonl --out=new", "results/accuracy.jsonl"
    return [
        Case("lra.report", "required: ROWS.jsonl"),
        Case("lra.report nowhere.jsonl", "no rows in nowhere.jsonl: no such file"),
        Case(f"{command} --format=pdf", "unknown format 'pdf'"),
        Case(f"{command} --curves mine.py", "no file of curves (.jsonl)"),
        Case(f"{command} --curves {rows}", f"{rows}, line 1: no learning curve"),
        Case("lra.report results/accuracy.jsonl --out=mine.py", "mine.py"),
        Case(command, "no rows in", write(rows, "")),
        Case(command, "line 1: not JSON", write(rows, "test 0.37\ntest 0.38\n")),
        Case(command, "line 1: not JSON", write(rows, b"\xff\xff\n{}\n")),
        Case(
            "lra.report notes.txt", "notes.txt, line 1: not JSON", write("notes.txt", "test 0.37\n")
        ),
        Case(
            "lra.report run/metrics.jsonl", "line 1: not a row of accuracy or cost but of metrics"
        ),
        Case("lra.report results", "no rows in results: it is a folder"),
        Case("lra.report run", "; name run/rows.jsonl", write("run/rows.jsonl", "")),
        Case("lra.report .", "file; name */rows.jsonl", write("run/rows.jsonl", "")),
        Case(f"lra.report {rows} --curves run", "--curves is for figures, which need a folder"),
        Case(command, "line 1: not a row: not an object", write(rows, "[0.37]\n")),
        Case(command, "test_accuracy is a fraction", edit_json(rows, test_accuracy=37.0)),
        Case(command, "test_accuracy cannot be 'high'", edit_json(rows, test_accuracy="high")),
        Case(command, "NaN is no number", edit_json(rows, test_accuracy=float("nan"))),
        Case(command, "unknown field 'mood'", edit_json(rows, mood="good")),
        Case(command, "task missing", edit_json(rows, task=None)),
        Case(command, "status is one of", edit_json(rows, status="fine")),
        Case(command, "schema 99 is unknown", edit_json(rows, schema=99)),
        Case(command, "line 2: was edited or damaged (sha256)", flip(rows)),
    ]
