"""Messages of `lra.data.prepare`: estimates before, counts and cost afterwards."""

import pathlib
from typing import Any

from lra.data.prepared import Estimate
from lra.process import peak_memory_bytes


def estimate_line(task: str, folder: pathlib.Path, estimate: Estimate) -> str:
    """Format the estimated cost of preparing `task` in `folder`."""
    return (
        f"{task:<10}  about {megabytes(estimate.bytes):>10}  about "
        f"{estimate.seconds:>5,.0f} s  in {folder}"
    )


def summary(
    task: str,
    folder: pathlib.Path,
    manifest: dict[str, Any],
    seconds: float | None,
    replaced: dict[str, Any] | None = None,
) -> str:
    """Describe the data in `folder`.

    Args:
        task: Name of the task.
        folder: Folder of its data.
        manifest: Manifest of the data.
        seconds: Time of preparing them; None if they had been prepared before.
        replaced: Manifest of the data that they replace, if any.
    """
    size = sum(facts["bytes"] for facts in manifest["files"].values())
    cost = "prepared before with the same flags"
    if seconds is not None:
        cost = f"{seconds:.1f} s, peak memory {megabytes(peak_memory_bytes())}"
    lines = [
        f"{task}: {counts(manifest)} in {folder}",
        f"  data      {manifest['data']}",
        f"  sha256    {manifest['sha256']}",
        f"  on disk   {megabytes(size)}",
        f"  cost      {cost}",
    ]
    if replaced and replaced["sha256"] != manifest["sha256"]:
        lines.append(
            f"  replaces  {counts(replaced)}, {replaced['data']}, sha256 {replaced['sha256']}; "
            "another --data_dir keeps both"
        )
    return "\n".join(lines)


def counts(manifest: dict[str, Any]) -> str:
    """Format the number of examples of each split."""
    return " / ".join(f"{count:,} {split}" for split, count in manifest["counts"].items())


def megabytes(size: int) -> str:
    """Format a number of bytes in MB (10^6 bytes)."""
    return f"{size / 1e6:,.1f} MB"
