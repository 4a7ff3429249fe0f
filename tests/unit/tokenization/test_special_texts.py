"""Tokenizers of separated words, with their characters, and of SMILES."""

import gzip
import re

import pytest

from heedful.errors import DataError
from heedful.tokenization.special_texts import (
    MAX_CHARACTERS,
    NUM_CHARACTERS,
    SMILESTokenizer,
    SMILESTokenizerConfig,
    WhitespaceTokenizerConfig,
    WordCharacterTokenizerConfig,
    join_spaces,
    split_spaces,
)
from heedful.tokenization.vocabulary import UNK


@pytest.fixture
def tokenizer():
    normalization = {"lowercase": True}
    return WordCharacterTokenizerConfig(normalization=normalization).train(["b a a", "A c"])


def test_tags_are_tokens_between_spaces():
    tokenizer = WhitespaceTokenizerConfig().train(["B-X O O", "NOUN|Case=Nom"])
    ids = tokenizer.encode("  O   NOUN|Case=Nom ?")
    assert len(ids) == 3
    assert tokenizer.decode(ids) == "O NOUN|Case=Nom <unk>"


def test_each_word_is_followed_by_the_characters(tokenizer):
    size = len(tokenizer)
    known, unknown = tokenizer.vocabulary.tokens_to_ids(["a", "Ab"])
    assert unknown == UNK
    assert tokenizer.encode("A Ab") == [known, size + 65, unknown, size + 65, size + 98]
    assert tokenizer.decode(tokenizer.encode("A C zz")) == "a c <unk>"


def test_number_of_words_is_the_number_of_ids_in_the_vocabulary(tokenizer):
    for text in ("", "a", "x \u4e00\u4e8c a", "y" * 100):
        ids = tokenizer.encode(text)
        assert sum(token < len(tokenizer) for token in ids) == len(split_spaces(text))
        assert all(0 < token < tokenizer.id_bound for token in ids)
    assert tokenizer.id_bound == len(tokenizer) + NUM_CHARACTERS


def test_long_words_keep_start_and_end(tokenizer):
    word = "abcdefghijklmnopqrstuvwxyz0123456789"
    tokens = tokenizer.ids_to_tokens(tokenizer.encode(word)[1:])
    assert "".join(tokens) == word[: MAX_CHARACTERS // 2] + word[-MAX_CHARACTERS // 2 :]


def test_words_with_spaces_stay_one_word():
    assert split_spaces(join_spaces(["1 000", "men"])) == ["1\u00a0000", "men"]


# Schwaller et al. 2019, in the README of their code.
PRINTED = re.compile(
    r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>|\*|\$|"
    r"\%[0-9]{2}|[0-9])"
)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("C[C@H](N)Cl", "C [C@H] ( N ) Cl"),
        ("BrCCB", "Br C C B"),
        ("c1ccccc1%12", "c 1 c c c c c 1 %12"),
        ("[Na+].[OH-]>>O=C", "[Na+] . [OH-] > > O = C"),
        (r"F/C=C\F", r"F / C = C \ F"),
    ],
)
def test_tokens_of_smiles_match_hand_segmentation(text, tokens):
    assert SMILESTokenizer.tokenize(text) == tokens.split()


def test_tokens_of_molecules_equal_the_printed_expression(heedful_data):
    path = heedful_data / "uspto50k" / "dev.reactants.gz"
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        tokens = SMILESTokenizer.tokenize(line)
        assert tokens == PRINTED.findall(line)
        assert "".join(tokens) == line


def test_other_characters_reported():
    with pytest.raises(DataError) as caught:
        SMILESTokenizerConfig().train(["CCO", "CC hello"])
    assert str(caught.value) == (
        "text 2: character 3 is ' ', which SMILES does not have\n"
        "  remove it, or set `strict: false` in the tokenizer"
    )
    tokenizer = SMILESTokenizerConfig().train(["CCO"])
    assert tokenizer.encode("CxO") == [tokenizer.encode("C")[0], UNK, tokenizer.encode("O")[0]]
