"""Writes folders as TFDS itself prepares them; in array_record without TensorFlow."""

import io
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np


def write(
    root: pathlib.Path,
    name: str,
    splits: dict[str, Sequence[dict[str, Any]]],
    file_format: str = "array_record",
) -> pathlib.Path:
    """Prepare TFDS's data set `name` below `root` from the given examples; return its folder."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import naming
    from tensorflow_datasets.core import splits as tfds_splits

    builder = tfds.builder(name, data_dir=root, file_format=file_format)
    folder = pathlib.Path(builder.data_dir)
    folder.mkdir(parents=True)
    infos = []
    for split, examples in splits.items():
        template = naming.ShardedFileTemplate(
            dataset_name=builder.name,
            data_dir=folder,
            split=split,
            filetype_suffix=file_format,
        )
        features = builder.info.features
        records = [features.serialize_example(features.encode_example(e)) for e in examples]
        path = template.sharded_filepath(shard_index=0, num_shards=1)
        writer = _writer(str(path), file_format)
        for record in records:
            writer.write(record)
        writer.close()
        infos.append(
            tfds.core.SplitInfo(
                name=split,
                shard_lengths=[len(records)],
                num_bytes=sum(map(len, records)),
                filename_template=template,
            )
        )
    builder.info.set_splits(tfds_splits.SplitDict(infos))
    builder.info.write_to_directory(folder)
    return folder


def _writer(path: str, file_format: str) -> Any:
    if file_format == "tfrecord":
        import tensorflow

        return tensorflow.io.TFRecordWriter(path)
    from array_record.python import array_record_module

    return array_record_module.ArrayRecordWriter(path, "group_size:1")


def png(image: np.ndarray) -> io.BytesIO:
    """An image uint8 [32, 32, 3] as the PNG file that TFDS would store."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    file.seek(0)
    return file
