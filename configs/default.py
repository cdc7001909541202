"""Every key of a configuration, with its default and where the default comes from.

A task's file (`configs/listops.py`, ...) takes this and sets what the task changes. All defaults
are those behind Table 3 of the Nyströmformer paper (arXiv 2102.03902) as its published PyTorch
code has them (mlpen/Nystromformer, folder LRA, commit 5689313; called NYS below).
Any key can be set on the command line: `--config.train.steps=500`.
"""

import difflib

from ml_collections import config_dict

# The options of each attention, at the values of Table 3.
ATTENTIONS = {
    "standard": {
        "dropout": 0.1,  # of attention weights; NYS applies it in its softmax baseline only
        "implementation": "auto",  # auto | xla | chunked | cudnn | flash
    },
    "nystrom": {
        "num_landmarks": 64,  # NYS README: "nystrom-64"
        "pinv_iterations": 6,  # paper, after Lemma 1: "about 6 iterations"
        "conv_kernel": 35,  # NYS lra_config; 0 leaves the convolution out
    },
    "linformer": {
        # A number; or one per layer, (256, 128); or one per layer and head, ((256, 128), ...).
        "proj_dim": 256,  # paper, LRA section: "projection dimension for Linformer is 256"
        "share": ("kv", "layers"),  # any of kv, heads, layers; NYS: one E per head for all of them
        "projection": "linear",  # linear | mean_pool | max_pool | conv
    },
    "performer": {
        "num_features": 256,  # paper, LRA section
        "kernel": "softmax",  # softmax | relu; NYS passes relu but its library ignores it
        # Of the softmax kernel's features: performer-pytorch. 0 leaves them unbiased; see
        # models/attention/performer.py for what 1e-4 can do to a training.
        "epsilon": 1e-4,
        # Draw new features every so many steps; 0 = never, as the library of NYS's time
        # (performer-pytorch 0.15, early 2021).
        "redraw_steps": 0,
    },
    "reformer": {
        "num_hashes": 2,  # paper, LRA section
        "chunk_length": 64,  # NYS: Hugging Face's default
    },
    "longformer": {
        "window": 128,  # keys a side; paper, Table 1: "sliding window size 257 (128 x 2 + 1)"
    },
    "linear": {},
}


def get_config(attention: str = "standard") -> config_dict.ConfigDict:
    """All keys at their defaults, with the options of `attention`.

    Raises:
        ValueError: an attention that is not in `ATTENTIONS`.
    """
    if attention not in ATTENTIONS:
        close = difflib.get_close_matches(attention, ATTENTIONS, n=1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        raise ValueError(f"unknown attention '{attention}' ({hint}known: {', '.join(ATTENTIONS)})")
    config = config_dict.ConfigDict()
    config.task = config_dict.placeholder(str)  # set by the task's file
    config.seeds = (0,)  # one training each, all in one program
    # Of activations: float32 | bfloat16; parameters stay float32. NYS: float16 (autocast), and a
    # step whose gradients overflow is left out.
    config.dtype = "float32"
    # Of float32 products: float32 | tensorfloat32 | bfloat16. A CPU computes all in float32.
    config.matmul_precision = "float32"
    config.model = _model(attention)
    config.train = _train()
    config.data = config_dict.ConfigDict()
    config.data.holdout = 0.0  # this share of train becomes the validation set; 0 = the task's own
    config.data.zero_is_padding = False  # pixels of value 0 are masked; True in the pixel tasks
    config.mesh = config_dict.ConfigDict()
    config.mesh.seed = 0  # devices along the seeds; 0 = as many as divide both
    config.mesh.data = 0  # devices along the batch; 0 = all that remain
    return config


def _model(attention: str) -> config_dict.ConfigDict:
    model = config_dict.ConfigDict()
    model.num_layers = 2  # paper, LRA section: 2 layers
    model.dim = 64  # paper: 64 embedding dimension
    model.mlp_dim = 128  # paper: 128 hidden dimension; also the hidden layer of the head
    model.num_heads = 2  # paper: 2 attention heads
    model.head_dim = 32  # num_heads * head_dim = dim
    model.dropout = 0.1  # NYS lra_config
    model.positions = "learned"  # learned | sinusoidal | none
    model.pooling = (
        "padded_mean"  # padded_mean (NYS: divides by padded length) | mean | max | first
    )
    model.remat = False  # recompute each block in the backward pass: less memory, more time
    model.attention = config_dict.ConfigDict({"name": attention, **ATTENTIONS[attention]})
    if attention == "linformer":
        # Numbers and tuples both fit.
        proj_dim = config_dict.FieldReference(model.attention.proj_dim, field_type=object)
        model.attention.proj_dim = proj_dim
    return model


def _train() -> config_dict.ConfigDict:
    train = config_dict.ConfigDict()
    train.steps = 5_000  # each task sets its own: steps, warmup_steps, batch_size, eval_every
    train.warmup_steps = 1_000  # linear, from 1/25 of the learning rate; may outlast the run
    train.learning_rate = 1e-4  # NYS: the peak of the one-cycle schedule
    train.weight_decay = 0.0  # NYS
    train.max_grad_norm = 0.0  # longer gradients are scaled down to it; 0 = never, as NYS
    train.batch_size = 32
    train.eval_every = 50  # steps between evaluations on the validation set
    train.eval_batch_size = 32  # changes speed and rounding only
    train.steps_per_call = 0  # training steps in one call of the device; 0 = about a second's
    train.checkpoint_seconds = 300  # between checkpoints; the first of a start comes after 15 s
    # At least so many parts of the batch, whose gradients are added up: less memory. A CPU takes as
    # many as keep a part in its caches. Each example draws by itself: this changes rounding only.
    train.microbatches = 1
    # Workdir of a complete run whose best parameters each seed starts from; "" = drawn.
    train.init_from = ""
    return train
