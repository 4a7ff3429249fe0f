"""Tokens of SMILES by hand, and by the regular expression as the authors print it."""

import gzip
import re

import pytest

from heedful.errors import DataError
from heedful.tokenization.smiles import SMILESTokenizer, SMILESTokenizerConfig
from heedful.tokenization.vocabulary import UNK

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
