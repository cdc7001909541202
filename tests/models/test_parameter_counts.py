"""Parameter counts of the models behind Table 3, from the official PyTorch code."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from configs import default
from models.heads import Classifier, PairClassifier

# Its vocabularies (32 for ListOps, 512 elsewhere) are larger than the tasks need.
COUNTS = {
    # task: (length, vocabulary, classes, {attention: parameters})
    "listops": (
        2048,
        32,
        10,
        {"standard": 209_802, "nystrom": 209_942, "linformer": 1_258_378},
    ),
    "text": (4096, 512, 2, {"standard": 370_562, "nystrom": 370_702, "linformer": 2_467_714}),
    "retrieval": (4096, 512, 2, {"standard": 395_138, "nystrom": 395_278, "linformer": 2_492_290}),
    "image": (1024, 512, 10, {"standard": 174_986, "nystrom": 175_126, "linformer": 699_274}),
    "pathfinder": (1024, 512, 2, {"standard": 173_954, "nystrom": 174_094, "linformer": 698_242}),
}


@pytest.mark.parametrize("attention", ["standard", "nystrom", "linformer"])
@pytest.mark.parametrize("task", COUNTS)
def test_counts_equal_the_reference(task, attention):
    length, vocabulary, classes, expected = COUNTS[task]
    model_class = PairClassifier if task == "retrieval" else Classifier
    model = nnx.eval_shape(
        lambda: model_class(
            default.get_config(attention).model.to_dict(),
            vocab_size=vocabulary,
            length=length,
            num_classes=classes,
            dtype=jnp.float32,
            rngs=nnx.Rngs(0),
        )
    )
    params = nnx.state(model, nnx.Param)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == expected[attention]
