import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lra.data.listops_generator import Rules, expressions
from lra.data.listops_language import VOCABULARY, decode, encode, evaluate
from lra.data.listops_tsv import Columns, locate, parse_line, read
from lra.errors import UserError
from tests.lra.data import listops_reference as reference

COLUMNS = Columns(source=0, target=1, count=2)
HEADER = "Source\tTarget\n"
GOOD = "( ( ( [MAX 4 ) 3 ) ] )\t4\n"


def line(tokens):
    tree = reference.parse(decode(tokens))
    return f"{reference.binary(tree)}\t{reference.value(tree)}\n"


def lines_of(path, content, max_length=2000):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read(path, max_length))


def test_the_official_form():
    assert reference.binary(reference.parse("[MAX 4 3 ]")) == "( ( ( [MAX 4 ) 3 ) ] )"
    assert parse_line(GOOD.encode(), COLUMNS, 2000) == (encode("[MAX 4 3 ]").tobytes(), 4)


@pytest.mark.parametrize("rules", [Rules(), Rules(0, 40)])
def test_generated_expressions_survive_the_official_form(tmp_path, rules):
    generated = list(itertools.islice(expressions(rules, 0), 200))
    read_back = lines_of(tmp_path / "x.tsv", HEADER + "".join(map(line, generated)))
    assert read_back == [(tokens, evaluate(tokens)) for tokens in generated]


def test_other_line_ends_and_columns_are_read(tmp_path):
    expected = [(encode("[MAX 4 3 ]").tobytes(), 4)]
    content = (HEADER + GOOD).replace("\n", "\r\n")
    assert lines_of(tmp_path / "crlf.tsv", content) == expected
    assert lines_of(tmp_path / "open.tsv", (HEADER + GOOD).rstrip("\n")) == expected
    assert lines_of(tmp_path / "bom.tsv", "\ufeff" + HEADER + GOOD) == expected
    content = "Index\tTarget\tSource\n0\t4\t( ( ( [MAX 4 ) 3 ) ] )\n"
    assert lines_of(tmp_path / "more.tsv", content) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: missing column 'Source'"),
        ("Source\n4\n", "line 1: missing column 'Target'"),
        (GOOD, "line 1: missing column 'Source'"),
        (HEADER, "has no expressions"),
        (HEADER + GOOD + "4\n", "line 3: 1 of 2 columns"),
        (HEADER + GOOD + "\n", "line 3: 1 of 2 columns"),
        (HEADER + GOOD + GOOD.replace("4 )", "4 ) 12"), r"line 3: foreign symbol '12'"),
        (HEADER + "( ( [AVG 4 ) ] )\t4\n", r"line 2: foreign symbol '\[AVG'"),
        (HEADER + "x" * 5000 + "\t4\n", r"line 2: foreign symbol 'xxxxxxxxxxxxxxxxxxxx\.\.\.'"),
        (HEADER.encode() + b"( \xff )\t4\n", r"line 2: foreign symbol b'\\xff' \(not UTF-8\)"),
        (HEADER + "( ( [SM " + "1 " * 1999 + ") ] )\t9\n", "line 2: 2,001 tokens, at most 2,000"),
        (HEADER + "1 " * 100_000 + "\t9\n", "line 2: longer than 64,320 bytes"),
        (b"\x00" * 10_000_000, "line 1: longer than 64,320 bytes"),
        (HEADER + "4\t10\n", "line 2: label '10' is not one of 0 to 9"),
        (HEADER + "4\t-1\n", "line 2: label '-1' is not one of 0 to 9"),
        (HEADER + "4\t\n", "line 2: label '' is not one of 0 to 9"),
        (HEADER + "4\t4.0\n", "line 2: label '4.0' is not one of 0 to 9"),
        (HEADER + GOOD.replace("\t4", "\t3"), "line 2: label 3, but the value of the expre.* is 4"),
        (HEADER + "\t3\n", "line 2: position 0: no expression"),
        (HEADER + "( [MIN 3 )\t3\n", r"line 2: position 2: 1 missing '\]'"),
        (HEADER + "3 3\t3\n", "line 2: position 1: the expression ended before this"),
    ],
)
def test_bad_files_are_named_with_the_line(tmp_path, content, message):
    path = tmp_path / "basic_train.tsv"
    with pytest.raises(UserError, match=message) as caught:
        lines_of(path, content)
    assert str(caught.value).startswith(str(path))


def test_longer_expressions_are_read_when_allowed(tmp_path):
    content = HEADER + "( ( [SM " + "1 " * 1999 + ") ] )\t9\n"
    ((tokens, label),) = lines_of(tmp_path / "x.tsv", content, max_length=2001)
    assert (len(tokens), label) == (2001, 9)


def test_a_missing_file_is_named(tmp_path):
    for name in ("basic_train.tsv", "basic_val.tsv"):
        (tmp_path / name).write_text(HEADER + GOOD)
    with pytest.raises(UserError, match=r"basic_test.tsv is missing; --source is the folder of"):
        locate(tmp_path)
    (tmp_path / "basic_test.tsv").write_text(HEADER + GOOD)
    assert list(locate(tmp_path)) == ["train", "validation", "test"]


symbols = st.sampled_from([*VOCABULARY, "(", ")", "\t", "\n", "12", "[AVG", "é"])


@given(st.binary(max_size=60) | st.lists(symbols, max_size=20).map(lambda s: " ".join(s).encode()))
def test_any_line_is_read_or_a_value_error(content):
    try:
        tokens, label = parse_line(content, COLUMNS, 2000)
    except ValueError:
        return
    assert label == reference.value(reference.parse(decode(tokens)))


fields = st.sampled_from(["Source", "Target", "3", "[MAX 4 2 ]", "( 4 )", "4", "]", "x"])
lines = st.lists(fields, max_size=3).map("\t".join).map(str.encode) | st.binary(max_size=20)


@given(st.lists(lines, max_size=5).map(b"\n".join))
def test_any_file_is_read_or_a_user_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "fuzzed.tsv"
    path.write_bytes(content)
    try:
        found = list(read(path, 20))
    except UserError as error:
        assert str(path) in str(error)  # noqa: PT017
        return
    assert len(found) == len(content.rstrip(b"\n").split(b"\n")) - 1
    for tokens, label in found:
        assert label == reference.value(reference.parse(decode(tokens)))
