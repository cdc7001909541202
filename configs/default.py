"""Every config key, with its default and the source of the default.

The file of a task (`configs/listops.py`, ...) starts from this and sets what the task changes.
Unless a comment says otherwise, defaults are those behind Table 3 of the Nyströmformer paper (arXiv
2102.03902) as in its published PyTorch code (mlpen/Nystromformer, folder LRA, commit 5689313;
called NYS below). Any key can be set on the command line: `--config.train.steps=500`.
"""

import difflib

from ml_collections import config_dict

# Options of each attention, at the values of Table 3.
ATTENTIONS = {
    "standard": {
        "dropout": 0.1,  # on attention weights; NYS applies it in its softmax baseline only
        "implementation": "auto",  # auto | xla | chunked | cudnn | flash
    },
    "nystrom": {
        "num_landmarks": 64,  # NYS README: "nystrom-64"
        "pinv_iterations": 6,  # paper, after Lemma 1: "about 6 iterations"
        "conv_kernel": 35,  # NYS lra_config; 0 omits the convolution
    },
    "linformer": {
        # A number; or one per layer, (256, 128); or one per layer and head, ((256, 128), ...).
        "proj_dim": 256,  # paper, LRA section: "projection dimension for Linformer is 256"
        "share": ("kv", "layers"),  # any of kv, heads, layers; NYS: one E per head for all of them
        "projection": "linear",  # linear | mean_pool | max_pool | conv; pooling ignores share
    },
    "performer": {
        "num_features": 256,  # paper, LRA section
        "kernel": "softmax",  # softmax | relu; NYS passes relu but its library ignores it
        # Added to the features of the softmax kernel, as in performer-pytorch; 0 leaves them
        # unbiased. models/attention/performer.py describes what 1e-4 can do to a training.
        "epsilon": 1e-4,
        # Steps between redraws of the features; 0 = never, as in the library when NYS was published
        # (performer-pytorch 0.15, early 2021).
        "redraw_steps": 0,
    },
    "reformer": {
        "num_hashes": 2,  # paper, LRA section
        "chunk_length": 64,  # NYS: Hugging Face's default
    },
    "longformer": {
        "window": 128,  # keys per side; paper, Table 1: "sliding window size 257 (128 x 2 + 1)"
    },
    "linear": {},
}


def get_config(attention: str = "standard") -> config_dict.ConfigDict:
    """Config of all keys at their defaults, with the options of `attention`.

    Raises:
        ValueError: If the attention is not in `ATTENTIONS`.
    """
    if attention not in ATTENTIONS:
        close = difflib.get_close_matches(attention, ATTENTIONS, n=1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        raise ValueError(f"unknown attention '{attention}' ({hint}known: {', '.join(ATTENTIONS)})")
    config = config_dict.ConfigDict()
    config.task = config_dict.placeholder(str)  # set in the file of the task
    config.seeds = (0,)  # one training per seed, all in one program
    # Dtype of activations: float32 | bfloat16; parameters stay float32. NYS: float16 (autocast),
    # skipping steps whose gradients overflow.
    config.dtype = "float32"
    # Precision of float32 matrix products: float32 | tensorfloat32 | bfloat16. CPUs always use
    # float32.
    config.matmul_precision = "float32"
    config.model = _model(attention)
    config.train = _train()
    config.data = config_dict.ConfigDict()
    config.data.holdout = 0.0  # fraction of train used for validation; 0 = the task's own set
    config.data.zero_is_padding = False  # mask pixels of value 0; True in the pixel tasks
    config.mesh = config_dict.ConfigDict()
    config.mesh.seed = 0  # devices along the seeds; 0 = chosen to use most devices
    config.mesh.data = 0  # along the batch; 0 likewise
    return config


def _model(attention: str) -> config_dict.ConfigDict:
    model = config_dict.ConfigDict()
    model.num_layers = 2  # paper, LRA section: 2 layers
    model.dim = 64  # paper: 64 embedding dimension
    model.mlp_dim = 128  # paper: 128 hidden dimension; also the hidden layer of the head
    model.num_heads = 2  # paper: 2 attention heads
    model.head_dim = 32  # num_heads * head_dim = dim
    model.dropout = 0.1  # NYS lra_config
    model.positions = "learned"  # learned (NYS) | sinusoidal | none
    model.pooling = (
        "padded_mean"  # padded_mean (NYS: divides by padded length) | mean | max | first
    )
    model.remat = False  # recompute each block in the backward pass: less memory, more time
    model.attention = config_dict.ConfigDict({"name": attention, **ATTENTIONS[attention]})
    if attention == "linformer":
        # May be a number or a tuple.
        proj_dim = config_dict.FieldReference(model.attention.proj_dim, field_type=object)
        model.attention.proj_dim = proj_dim
    return model


def _train() -> config_dict.ConfigDict:
    train = config_dict.ConfigDict()
    train.steps = 5_000  # each task sets its own: steps, warmup_steps, batch_size, eval_every
    train.warmup_steps = 1_000  # linear, from 1/25 of the learning rate; may exceed train.steps
    train.learning_rate = 1e-4  # NYS: peak of the one-cycle schedule
    train.weight_decay = 0.0  # NYS
    train.max_grad_norm = 0.0  # gradients are clipped to this global norm; 0 = never, as in NYS
    train.batch_size = 32  # NYS
    train.eval_every = 50  # steps between evaluations on the validation set
    train.eval_batch_size = 32  # changes speed and rounding only
    train.steps_per_call = 0  # training steps in one compiled call; 0 = as many as take about 1 s
    train.checkpoint_seconds = 300  # between checkpoints; a process saves first after 15 s
    # Minimum number of parts of a batch for gradient accumulation, which saves memory. A CPU uses
    # as many as keep a part in its caches. Each example has its own random key, so this changes
    # rounding only.
    train.microbatches = 1
    # Workdir of a complete run whose best parameters each seed starts from; "" = random.
    train.init_from = ""
    return train
