"""Tokenizers of pages give the ids and texts that those of Python give, for any Unicode."""

import random
from unicodedata import category

import pytest

from heedful.tokenization.byte_level_bpe import (
    BartTokenizer,
    BartTokenizerConfig,
    ByteLevelBPETokenizer,
    ByteLevelBPETokenizerConfig,
    byte_characters,
)
from heedful.tokenization.page_tokenizers import describe_tokenizers, unsupported_tokenizer
from heedful.tokenization.special_texts import (
    PositionTokenizerConfig,
    SMILESTokenizerConfig,
    WhitespaceTokenizerConfig,
    WordCharacterTokenizerConfig,
)
from heedful.tokenization.subword import SubwordTokenizerConfig
from heedful.tokenization.tokenizer import (
    CharacterTokenizerConfig,
    LabelTokenizerConfig,
    NormalizerConfig,
    WordTokenizerConfig,
)
from heedful.tokenization.tokenizer_pair import SharedTokenizerConfig, TokenizerPair
from heedful.tokenization.vocabulary import Vocabulary
from heedful.tokenization.wordpiece import WordPieceTokenizer, WordPieceTokenizerConfig
from tests.page_modules import NEEDS_NODE, run_module

pytestmark = [NEEDS_NODE, pytest.mark.wide]

NUM_TEXTS, MANY = 400, 10_000
# Others may be letters in the Unicode of Node.js, which is newer than Python's.
ASSIGNED = [code for code in range(0xD800) if category(chr(code)) != "Cn"]
WORDS = ("The", "girl's", "garden,", "puella", "cantat.", "stra\u00dfe")
WORDS += ("\u0130stanbul", "\u039f\u0394\u039f\u03a3")
PARTS = (
    *WORDS,
    *"\u2581\u2585\ue000\ue001\ufeff\u200d\u0301\u00a0\u3000\x1c\x85\t\n\r\x00",
    *(
        "\u4eca\u65e5\u306f",
        "\u0928\u092e\u0938\u094d\u0924\u0947",
        "\U0001f469\u200d\U0001f52c",
        "\ufb01",
        "\U0001d400",
    ),
    *("...", "(a)", "'s", " -- ", '"x"', "C[C@H](N)Br", "%12", "\u00bd", "\u216b", "\u00aa"),
)
TRAINING = [" ".join(WORDS[index:] + WORDS[:index]) for index in range(len(WORDS))]
TRAINING += ["C[C@H](N)Br", "\u4eca\u65e5 \u0928\u092e\u0938\u094d\u0924\u0947 (a) x ..."]
ALL = NormalizerConfig(unicode="nfkc", lowercase=True, strip=True, punctuation="remove")
SUBWORDS = {"vocab_size": 330, "character_coverage": 1.0}
CONFIGS = {
    "word": WordTokenizerConfig(),
    "word, normalized": WordTokenizerConfig(normalization=ALL),
    "character": CharacterTokenizerConfig(normalization=NormalizerConfig(unicode="nfc")),
    "label": LabelTokenizerConfig(),
    "smiles": SMILESTokenizerConfig(strict=False),
    "whitespace": WhitespaceTokenizerConfig(),
    "word-character": WordCharacterTokenizerConfig(normalization=NormalizerConfig(lowercase=True)),
    "byte-level-bpe": ByteLevelBPETokenizerConfig(),
    "byte-level-bpe, with a space": ByteLevelBPETokenizerConfig(add_prefix_space=True),
    "bart": BartTokenizerConfig(special_tokens=("<mask>",)),
    "wordpiece": WordPieceTokenizerConfig(),
    "wordpiece, as it is": WordPieceTokenizerConfig(
        lowercase=False, strip_accents=False, clean_text=False, split_chinese=False
    ),
    "wordpiece, short words": WordPieceTokenizerConfig(max_word_length=4),
    "unigram": SubwordTokenizerConfig(**SUBWORDS),
    "unigram, lower case": SubwordTokenizerConfig(
        **SUBWORDS, normalization=NormalizerConfig(lowercase=True)
    ),
    "bpe": SubwordTokenizerConfig(**SUBWORDS, model_type="bpe"),
}
MODULE = """import { PageTokenizer } from "./tokenizers.js";
const tokenizer = new PageTokenizer(input.settings);
answer(input.texts.map((text, index) => {
  const ids = tokenizer.encode(text);
  const others = input.ids[index];
  return [ids, tokenizer.decode(ids), tokenizer.decode(others), tokenizer.display(others)];
}));
"""


def fuzzed_texts(seed, count):
    chance = random.Random(seed)
    return [
        "".join(
            chance.choice(
                (
                    chance.choice(PARTS),
                    " ",
                    chr(chance.choice((chance.choice(ASSIGNED), 0x10FFFF))),
                )
            )
            for _ in range(chance.randrange(12))
        )
        for _ in range(count)
    ]


def build(config):
    """Train a tokenizer, or write the files of a pretrained one."""
    if isinstance(config, ByteLevelBPETokenizerConfig):
        merges = [("t", "h"), ("th", "e"), ("\u0120", "the"), ("\u00c3", "\u0141"), ("a", "n")]
        merges += [("1", "2"), (".", "."), ("..", "."), ("\u0120", "g"), ("e", "n"), ("an", "t")]
        tokens = [
            *byte_characters(),
            *("".join(merge) for merge in merges),
            "<s>",
            "<mask>",
            "\u4e00",
        ]
        tokenizer = BartTokenizer if config.type == "bart" else ByteLevelBPETokenizer
        return tokenizer(Vocabulary(tokens), merges, config)
    if isinstance(config, WordPieceTokenizerConfig):
        words = [word.lower() for text in TRAINING for word in text.split()]
        characters = sorted({*"".join(words), *"abcxyz.,'"})
        pieces = [*words, *characters, *(f"##{piece}" for piece in (*characters, "en", "la", "at"))]
        return WordPieceTokenizer(Vocabulary(list(dict.fromkeys(pieces))), config)
    return config.train(TRAINING)


def shared(config, tokenizer):
    return SharedTokenizerConfig(tokenizer=config), TokenizerPair(tokenizer, tokenizer)


@pytest.mark.parametrize("count", [NUM_TEXTS, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CONFIGS)
def test_javascript_tokenizer_matches_python(name, count):
    config = CONFIGS[name]
    tokenizer = build(config)
    described = describe_tokenizers(*shared(config, tokenizer))["shared"]
    texts = [*TRAINING, *fuzzed_texts(name, count), ""]
    chance = random.Random(0)
    ids = [[chance.randrange(len(tokenizer)) for _ in range(9)] for _ in texts]
    expected = [
        [
            encoded,
            tokenizer.decode(encoded),
            tokenizer.decode(others),
            tokenizer.ids_to_tokens(others),
        ]
        for encoded, others in zip(tokenizer.encode_batch(texts), ids, strict=True)
    ]
    actual = run_module(MODULE, {"settings": described, "texts": texts, "ids": ids})
    for text, one, other in zip(texts, expected, actual, strict=True):
        assert other == one, repr(text)


def test_invalid_surrogate_becomes_a_replacement_character():
    config = CONFIGS["unigram"]
    tokenizer = config.train(TRAINING)
    described = describe_tokenizers(*shared(config, tokenizer))["shared"]
    module = MODULE.replace("(input.texts", '(["a\\ud800b"]')
    [[ids, *_]] = run_module(module, {"settings": described, "ids": [[]]})
    assert ids == tokenizer.encode("a\ufffdb")


def test_unsupported_tokenizer_type_has_a_message():
    config = PositionTokenizerConfig()
    pair = shared(config, config.train(["1 2"]))
    assert unsupported_tokenizer(*pair) == (
        "pages have no tokenizers of the type 'position', only: "
        "word, character, label, smiles, whitespace, word-character, subword, "
        "byte-level-bpe, bart, wordpiece"
    )
