"""Legend of a section of costs: the meaning of the names of lines in all its tables."""

import re
from collections.abc import Iterable

from lra.report.cells import TITLES
from lra.report.costs.sheets import Line, Sheet
from lra.report.table import Table

# Meaning of the number after the name of a method.
_SIZES = {
    "reformer": "hash rounds",
    "linformer": "projection dimension",
    "performer": "random features",
    "nystrom": "landmarks",
    "longformer": "positions in the window",
}
# Which projections Linformer shares, by the word after its name.
SHARINGS = {
    "headwise": "one for the keys and one for the values of all heads of a layer",
    "key-value": "one for the keys and values of all heads of a layer",
    "layerwise": "one for the keys and values of all heads and layers",
}
# Our implementations of exact attention, by the name in brackets.
_EXACT = {
    "xla": "is not computed in blocks",
    "chunked": "is computed block by block and keeps no scores",
    "cudnn": "is a fused kernel of cuDNN",
    "flash": "is kernels of our own",
}
# Peers, by name of their distribution on PyPI.
_PEERS = {
    "jax": "jax.nn",
    "torch": "torch (plain: written out, sdpa: its fused function)",
    "transformers": "transformers (Hugging Face)",
    "linformer": "linformer (lucidrains)",
    "nystrom-attention": "nystrom-attention (lucidrains)",
    "performer-pytorch": "performer-pytorch (lucidrains)",
}


def legend(sheets: list[Sheet], tables: list[Table]) -> str:
    """Return one paragraph that explains the lines of a setting.

    Args:
        sheets: Sheets of the setting.
        tables: Tables that show the sheets.
    """
    lines = list(dict.fromkeys(line for sheet in sheets for line in sheet.lines))
    published = any("published" in line[0] for table in tables for line in table.lines)
    parts = [
        *_on_exact(line for line in lines if line.ours and line.method == "standard"),
        *_on_sizes(line.method for line in lines if line.size is not None),
        *_on_sharing(line.label.rpartition(" ")[2] for line in lines if line.ours),
        *_on_peers(line.source for line in lines if not line.ours),
        "Lines called published are numbers of papers, from other devices." if published else "",
    ]
    return " ".join(filter(None, parts))


def _on_exact(lines: Iterable[Line]) -> list[str]:
    names = [re.sub(r".*\((.*)\)", r"\1", line.label) for line in lines]
    meanings = [f"({name}) {_EXACT[name]}" for name in names if name in _EXACT]
    return [f"Standard is exact attention: {', '.join(meanings)}."] if meanings else []


def _on_sizes(methods: Iterable[str]) -> list[str]:
    present = set(methods)
    meanings = [f"{size} of {TITLES[name]}" for name, size in _SIZES.items() if name in present]
    return [f"The number behind a name: {', '.join(meanings)}."] if meanings else []


def _on_sharing(words: Iterable[str]) -> list[str]:
    present = set(words)
    meanings = [f"{word}, {text}" for word, text in SHARINGS.items() if word in present]
    return [f"Projections of Linformer: {'; '.join(meanings)}."] if meanings else []


def _on_peers(sources: Iterable[str]) -> list[str]:
    packages = dict.fromkeys(_PEERS.get(source, source) for source in sources)
    return (
        [f"Peers, by others, have their package in brackets: {', '.join(packages)}."]
        if packages
        else []
    )
