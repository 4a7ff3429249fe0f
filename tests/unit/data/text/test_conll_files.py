"""CoNLL files: words and tags of every format, lines that are no words, errors."""

import gzip

import pytest

from heedful.data.text.conll_files import CONLL_U_COLUMNS, ConllConfig, read_conll
from heedful.data.text.pair_dataset import Pair
from heedful.errors import DataError, quote_names

CONLL_U = """\
# sent_id = 1
# text = I don't
1\tI\tI\tPRON\tPRP\t_\t2\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_
3.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_

# sent_id = 2
1\t1 000\t1 000\tNUM\tCD\t_\t0\troot\t_\t_
"""
CONLL_2003 = "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\n.  . O   O\n"
GIVE = "give --source-column and --target-column"
TWEETS = "#joy\tO\n#\tO\n\n@me\tB-person\n"


def pairs(path, **columns):
    return ConllConfig(path=str(path), **columns).read()


@pytest.fixture
def write(tmp_path):
    def write_file(text, name="words.conll"):
        (tmp_path / name).write_text(text, newline="")
        return tmp_path / name

    return write_file


def test_conll_u_has_words_and_universal_tags(write):
    expected = [Pair("I do n't", "PRON AUX PART"), Pair("1\u00a0000", "NUM")]
    assert pairs(write(CONLL_U)) == expected
    assert pairs(write(CONLL_U.replace("\n", "\r\n"))) == expected
    assert pairs(write(CONLL_U.replace("\n\n", "\n \n\n") + "\n\n")) == expected


@pytest.mark.parametrize(
    ("column", "tags"), [("XPOS", "PRP VBP RB"), ("deprel", "nsubj root advmod")]
)
def test_columns_are_chosen_by_name_or_number(write, column, tags):
    number = {"XPOS": 5, "deprel": 8}[column]
    for choice in (column, number):
        assert pairs(write(CONLL_U), target_column=choice)[0].target == tags


def test_columns_may_be_named_in_the_file(write):
    text = "# global.columns = ID FORM ENTITY UPOS\n1\tRome\tB-LOC\tPROPN\n"
    assert pairs(write(text)) == [Pair("Rome", "PROPN")]
    assert pairs(write(text), target_column="entity") == [Pair("Rome", "B-LOC")]


def test_other_files_have_words_first_and_tags_last(write):
    assert pairs(write(CONLL_2003)) == [Pair("EU .", "B-ORG O")]
    assert pairs(write(CONLL_2003), source_column=1, target_column=2) == [Pair("EU .", "NNP .")]


def test_words_may_begin_with_a_number_sign(write):
    assert pairs(write(TWEETS)) == [Pair("#joy #", "O O"), Pair("@me", "B-person")]


def test_compressed_files_load(write, tmp_path):
    (tmp_path / "words.conll.gz").write_bytes(gzip.compress(TWEETS.encode()))
    assert pairs(tmp_path / "words.conll.gz") == pairs(write(TWEETS))


@pytest.mark.parametrize("text", [CONLL_U, CONLL_2003, TWEETS, "# only\n\na b O\n"])
def test_sentences_with_own_tags_have_the_lines_that_were_read(write, text):
    lines = [
        line
        for sentence in read_conll(str(write(text)))
        for line in (*sentence.with_tags(sentence.tags), "")
    ]
    assert "\n".join(lines) == text


def test_new_tags_replace_only_the_column(write):
    first, *_ = read_conll(str(write(CONLL_U)), tag_column="upos")
    lines = first.with_tags(["A", "B", "C"])
    assert lines[2] == "1\tI\tI\tA\tPRP\t_\t2\tnsubj\t_\t_"
    assert lines[3] == CONLL_U.splitlines()[3]
    *_, last = read_conll(str(write(CONLL_2003)))
    assert last.with_tags(["X", "YY"]) == ["EU NNP B-NP X", ".  . O   YY"]


def test_words_without_tags_get_a_new_column(write):
    (sentence,) = read_conll(str(write("Rome\nburns\n")))
    assert sentence.with_tags(["B", "O"]) == ["Rome B", "burns O"]


@pytest.mark.parametrize(
    ("text", "columns", "message", "hint"),
    [
        (
            "a\tO\nb\n",
            {},
            ":2: 1 column, but line 1 has 2",
            "look for lost or added tabs, or for white space in a word",
        ),
        (
            "a\tO\n",
            {"target_column": 3},
            ":1: 2 columns, but column 3 is needed",
            f"{GIVE}, or look for lost tabs",
        ),
        (
            "a\tO\n",
            {"target_column": "ner"},
            ":1: no column is called 'ner'",
            f"{GIVE}; columns found: 2 without names: give a number",
        ),
        (
            CONLL_U,
            {"target_column": "upo"},
            ":3: no column is called 'upo'; did you mean 'upos'?",
            f"{GIVE}; columns found: {quote_names(CONLL_U_COLUMNS)}",
        ),
        ("a\n", {}, ":1: 1 column, so there are no tags", "give a file of words and tags"),
        ("a\t\n", {}, ":1: the tag is empty", "give one, such as _"),
        ("a\tb c\n", {}, ":1: the tag 'b c' contains a space", "replace it, such as by _"),
        (
            "# nothing\n\n",
            {},
            ": contains no words",
            "give a file with a word and its tag per line",
        ),
    ],
)
def test_broken_files_reported(write, text, columns, message, hint):
    path = write(text)
    with pytest.raises(DataError) as caught:
        pairs(path, **columns)
    assert str(caught.value) == f"{path}{message}\n  {hint}"
