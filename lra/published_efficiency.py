"""Published costs in the units of their papers, with the device they were measured on."""

from typing import NamedTuple


class Published(NamedTuple):
    """One line of a published table.

    Attributes:
        title: Name of the method in the paper.
        method: Name of the method here.
        size: Number of landmarks, projection dimension, ..., which distinguishes lines of a method.
        values: Published value at each length.
        times: Factor by which that is better than exact attention at each length, as printed (from
            numbers with more digits); empty if the paper has only the values.
    """

    title: str
    method: str
    size: int | None
    values: dict[int, float]
    times: dict[int, float]


def _lines(lengths: tuple[int, ...], *lines: tuple) -> tuple[Published, ...]:
    return tuple(
        Published(
            title,
            method,
            size,
            dict(zip(lengths, values, strict=True)),
            dict(zip(lengths, times, strict=True)) if times else {},
        )
        for title, method, size, values, times in lines
    )


# Xiong et al., "Nyströmformer", arXiv 2102.03902, Table 1: forward pass of one self-attention
# module, for one input, on an Nvidia 1080 Ti.
_TABLE1_LENGTHS = (512, 1024, 2048, 4096, 8192)
TABLE1_TIME = _lines(  # milliseconds
    _TABLE1_LENGTHS,
    ("Transformer", "standard", None, (0.8, 2.4, 10.0, 32.9, 155.4), (1, 1, 1, 1, 1)),
    ("Linformer-256", "linformer", 256, (0.7, 1.3, 2.7, 5.3, 11.3), (1.1, 1.8, 3.6, 6.2, 13.8)),
    ("Longformer-257", "longformer", 257, (2.4, 4.6, 9.2, 18.5, 36.2), (0.3, 0.5, 1.0, 1.8, 4.3)),
    ("Nyströmformer-64", "nystrom", 64, (0.7, 1.3, 2.7, 5.9, 12.3), (1.1, 1.8, 3.6, 5.6, 12.7)),
    ("Nyströmformer-32", "nystrom", 32, (0.6, 1.2, 2.6, 5.6, 11.5), (1.2, 1.9, 3.7, 5.9, 13.4)),
)
TABLE1_MEMORY = _lines(  # megabytes
    _TABLE1_LENGTHS,
    ("Transformer", "standard", None, (54, 186, 685, 2620, 10233), (1, 1, 1, 1, 1)),
    ("Linformer-256", "linformer", 256, (41, 81, 165, 366, 635), (1.3, 2.3, 4.2, 7.2, 16.1)),
    ("Longformer-257", "longformer", 257, (32.2, 65, 130, 263, 455), (1.7, 2.9, 5.3, 10.0, 22.5)),
    ("Nyströmformer-64", "nystrom", 64, (35, 63, 118, 229, 450), (1.5, 3.0, 5.8, 11.5, 22.8)),
    ("Nyströmformer-32", "nystrom", 32, (26, 49, 96, 193, 383), (2.1, 3.8, 7.1, 13.6, 26.7)),
)
TABLE1_SOURCE = (
    "Published: Xiong et al., arXiv 2102.03902, Table 1: forward pass, Nvidia 1080 Ti; of which "
    "width is not stated (BERT-base, with which they train, has d = 768)."
)

# Wang et al., "Linformer", arXiv 2006.04768, Table 3: forward pass of whole models on a Tesla V100
# of 16 GB, at the largest batch that fits; memory saved is how many times the Transformer's batch.
LINFORMER_LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
LINFORMER_SHARING = "layerwise"  # of projections, as the labels of lines name it
LINFORMER_SIZES = (128, 256, 512, 1024, 2048)
LINFORMER_TIME_SAVED = {  # by projected dimension k, at each length; None where not given
    128: (1.5, 1.7, 2.6, 3.4, 5.5, 8.6, 13, 20),
    256: (1.3, 1.6, 2.4, 3.2, 5.0, 7.8, 12, 18),
    512: (None, 1.3, 2.1, 2.8, 4.4, 7.0, 11, 16),
    1024: (None, None, 1.3, 2.2, 3.5, 5.6, 8.8, 14),
    2048: (None, None, None, 1.3, 2.1, 3.3, 5.0, 7.9),
}
LINFORMER_MEMORY_SAVED = {
    128: (1.7, 3.0, 6.1, 14, 28, 56, 56, 60),
    256: (1.5, 2.9, 5.6, 13, 26, 48, 48, 52),
    512: (None, 1.8, 3.6, 8.3, 17, 32, 36, 40),
    1024: (None, None, 2.0, 4.3, 8.5, 16, 18, 20),
    2048: (None, None, None, 2.3, 4.5, 8, 16, 18),
}
LINFORMER_SOURCE = (
    "Published: Wang et al., arXiv 2006.04768, Table 3: forward pass of whole models, layerwise "
    "sharing, Tesla V100 of 16 GB, largest batch that fits."
)

# Tay et al., "Long Range Arena", arXiv 2011.04006, the efficiency table: byte-level text
# classification, batch 32, 4 x 4 TPU v3, memory of one device. Columns: 1K, 2K, 3K, 4K.
# Memory is in gigabytes there. Only methods that are implemented here.
_LRA_LENGTHS = (1024, 2048, 3072, 4096)
LRA_STEPS = _lines(  # per second
    _LRA_LENGTHS,
    ("Transformer", "standard", None, (8.1, 4.9, 2.3, 1.4), ()),
    ("Linformer", "linformer", None, (9.3, 9.1, 8.5, 7.7), ()),
    ("Reformer", "reformer", None, (4.4, 2.2, 1.5, 1.1), ()),
    ("Linear Transformer", "linear", None, (9.1, 9.3, 8.6, 7.8), ()),
    ("Performer", "performer", None, (9.5, 9.4, 8.7, 8.0), ()),
)
LRA_MEMORY = _lines(  # megabytes
    _LRA_LENGTHS,
    ("Transformer", "standard", None, (850, 2650, 5510, 9480), ()),
    ("Linformer", "linformer", None, (370, 550, 990, 990), ()),
    ("Reformer", "reformer", None, (480, 990, 1530, 2280), ()),
    ("Linear Transformer", "linear", None, (370, 570, 800, 1030), ()),
    ("Performer", "performer", None, (370, 590, 820, 1060), ()),
)
LRA_SOURCE = (
    "Published: Tay et al., arXiv 2011.04006, efficiency table: 4 x 4 TPU v3, batch 32. That "
    "model was another, and larger: compare ratios only."
)
