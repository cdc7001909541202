"""Raw files and requests that `lra.data.prepare` must refuse."""

from tests.small_world import (
    TSV,
    Case,
    archive,
    both,
    cut,
    damaged_archive,
    pickled,
    picture,
    remove,
    write,
)

PREPARE = "lra.data.prepare"
HARD = "raw/pathfinder32/curv_contour_length_14"


def cases() -> list[Case]:
    """All of them."""
    tasks = (_listops, _text, _image, _retrieval, _pathfinder)
    return _requests() + [case for task in tasks for case in task()]


def _requests() -> list[Case]:
    return [
        Case(PREPARE, "required: TASK"),
        Case(f"{PREPARE} listop", "did you mean 'listops'?"),
        Case(f"{PREPARE} listops --sed=3", "did you mean '--seed'?"),
        Case(f"{PREPARE} listops --seed=-1", "'-1' is not 0 or a positive integer"),
        Case(f"{PREPARE} listops --workers=none", "'none' is not a positive integer"),
        Case(f"{PREPARE} listops --data_label=", "the name is one line"),
        Case(f"{PREPARE} listops --data_dir=mine.py", "mine.py"),
        Case(f"{PREPARE} text --data_dir=data", "put aclImdb or aclImdb_v1.tar.gz into data/raw"),
        Case(f"{PREPARE} text --data_dir=mine", "SOURCE, which is tfds, download or a path"),
        Case(f"{PREPARE} text --source=nowhere", "--source=nowhere is not a file or a folder"),
        Case(f"{PREPARE} image --source=nowhere", "--source=nowhere is not a file or a folder"),
        Case(f"{PREPARE} all --source=mine.py", "takes a folder of raw files"),
        Case(f"{PREPARE} text --tfds_dir=data", "--tfds_dir=data goes with --source=tfds"),
        Case(
            f"{PREPARE} listops --data_dir=raw --train=9 --validation=9 --test=9",
            "raw/listops is in the way and is not prepared data",
        ),
        Case(f"{PREPARE} pathx --num_images=1000000000000", "free some space"),
    ]


def _listops() -> list[Case]:
    command = f"{PREPARE} listops --source=raw/listops --data_dir=data"
    file = "raw/listops/basic_train.tsv"
    line = "basic_train.tsv, line 3: "
    return [
        Case(f"{PREPARE} listops --data_dir=data --train=0", "every split needs an expression"),
        Case(f"{PREPARE} listops --data_dir=data --max_args=1", "--max_args=1 is not in"),
        Case(f"{PREPARE} listops --data_dir=data --min_length=90 --max_length=80", "max_length"),
        Case(f"{command} --train=5", "only --max_length goes with files"),
        Case(f"{command} --max_length=1000000", "--max_length=1000000 is not in 1 to 100,000"),
        Case(command, "basic_test.tsv is missing", remove("raw/listops/basic_test.tsv")),
        Case(command, "missing column 'Source'", write(file, "Text\tTarget\n")),
        Case(command, "has no expressions", write(file, "Source\tTarget\n")),
        Case(command, f"{line}1 of 2 columns", write(file, TSV + "4\n")),
        Case(command, f"{line}foreign symbol '[AVG'", write(file, TSV + "[AVG 4 ]\t4\n")),
        Case(command, f"{line}label 5, but the value", write(file, TSV + "[MIN 4 ]\t5\n")),
        Case(command, f"{line}label 'x' is not one of", write(file, TSV + "[MIN 4 ]\tx\n")),
        Case(command, f"{line}position 2: 1 missing ']'", write(file, TSV + "[MIN 4\t4\n")),
        Case(command, f"{line}longer than", write(file, TSV + "4 " * 100_000 + "\t4\n")),
        Case(command, "not UTF-8", write(file, TSV.encode() + b"\xff\xfe\t4\n")),
    ]


def _text() -> list[Case]:
    folder = f"{PREPARE} text --source=raw/aclImdb --data_dir=data"
    packed = f"{PREPARE} text --source=raw/a.tar.gz --data_dir=data"
    file, review = "raw/a.tar.gz", "raw/aclImdb/train/neg"
    return [
        Case(folder, "no reviews in train/neg", remove(review)),
        Case(folder, "0_5.txt: the review is empty", write(f"{review}/0_5.txt", "")),
        Case(folder, "called <number>_<rating>.txt", write(f"{review}/notes.txt", "x")),
        Case(packed, "not a .tar.gz", write(file, b"PK\x03\x04 a zip")),
        Case(packed, "truncated", both(archive(file, name="aclImdb/test/pos/0_9.txt"), cut(file))),
        Case(packed, "CRC check failed", damaged_archive(file)),
        Case(packed, "points outside the folder", archive(file, name="../train/neg/1_1.txt")),
        Case(packed, "points outside the folder", archive(file, name="/train/neg/1_1.txt")),
        Case(packed, "is a link or a device", archive(file, name="a", type=b"2", linkname="/etc")),
        Case(packed, "is a link or a device", archive(file, name="a", type=b"6")),
        Case(packed, "called <number>_<rating>.txt", archive(file, name="x/train/neg/1.txt")),
    ]


def _image() -> list[Case]:
    command = f"{PREPARE} image --source=raw/cifar --data_dir=data"
    batch, record = "raw/cifar/data_batch_3.bin", bytes([12]) + bytes(3072)
    other = {b"labels": [1], b"data": b"pixels"}
    return [
        Case(command, "data_batch_3 of CIFAR-10 is missing", remove(batch)),
        Case(command, "data_batch_3.bin, image 0: 100 bytes instead of 3073", cut(batch)),
        Case(command, "image 0: label 12 is not in 0 to 9", write(batch, record)),
        Case(command, "foreign class", pickled()),
        Case(command, "no list of numbers 'labels'", pickled([1, 2])),
        Case(command, "no array 'data'", pickled(other)),
        Case(f"{command} --order=random", "invalid choice: 'random'"),
        Case(f"{command} --source=tfds --order=file", "does not go with --source=tfds"),
    ]


def _retrieval() -> list[Case]:
    command = f"{PREPARE} retrieval --source=raw/aan --data_dir=data"
    file = "raw/aan/pairs.train.tsv"
    return [
        Case(
            f"{PREPARE} retrieval --source=raw --data_dir=data",
            "pairs.train.tsv is missing",
            remove("raw/aan/pairs.train.tsv"),
        ),
        Case(f"{PREPARE} retrieval --source=results --data_dir=data", "nor a folder docs"),
        Case(command, "no pairs in it", write(file, "")),
        Case(command, "line 1: ", write(file, "1.0\ta\n")),
        Case(command, "label b'2.0' is neither 0.0 nor 1.0", write(file, "2.0\ta\tb\n")),
        Case(command, "no document", write(file, "1.0\ta\tc\n")),
        Case(command, "no document", write(file, "1.0\ta\t../../mine\n")),
        Case(command, "an empty document", write("raw/aan/docs/a.txt", "")),
    ]


def _pathfinder() -> list[Case]:
    command = f"{PREPARE} pathfinder --source=raw --data_dir=data"
    metadata = f"{HARD}/metadata/0.npy"
    return [
        Case(f"{PREPARE} pathfinder --data_dir=data --num_images=5", "at least 10"),
        Case(f"{PREPARE} pathfinder --data_dir=data --size=33", "invalid choice: 33"),
        Case(f"{PREPARE} pathfinder --data_dir=data --source=nowhere", "no such folder"),
        Case(f"{command} --num_images=50", "does not go with files"),
        Case(f"{command} --difficulty=easy", "holds no pathfinder32/curv_baseline"),
        Case(f"{command}/pathfinder32 --size=64", "pathfinder64"),
        Case(command, "is a NumPy array", write(metadata, b"\x93NUMPY\x01\x00")),
        Case(command, "2 fields, at least 4", write(metadata, "imgs/0 sample_0.png\n")),
        Case(command, "the label is '2'", write(metadata, "imgs/0 sample_0.png 0 2\n")),
        Case(command, "no image", write(metadata, "imgs/0 sample_99.png 0 1\n")),
        Case(command, "is damaged or no PNG", write(f"{HARD}/imgs/0/sample_0.png", "GIF89a")),
        Case(command, "is 16 x 16 pixels of mode L", picture(16)),
        Case(command, "of mode RGB", picture(32, "RGB")),
    ]
