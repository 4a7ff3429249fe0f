"""Writing: what comes as a stream is what comes at once, and gaps are filled."""

import pytest

import heedful
from heedful.data.token_stream import LMBatchingConfig
from heedful.errors import ConfigError, DataError
from heedful.models.backbones import RecurrentBackboneConfig
from heedful.models.language_model import LanguageModelConfig
from heedful.models.masked_language_model import MaskedLanguageModelConfig, MaskingConfig
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.tasks.language_modeling.generator import (
    TextGenerator,
    build_sampling_options,
    stream_text,
)
from heedful.tasks.masked_language_modeling.mask_filler import MaskFiller
from heedful.tokenization.subword import SubwordTokenizerConfig
from heedful.tokenization.tokenizer import CharacterTokenizerConfig, WordTokenizerConfig
from heedful.tokenization.vocabulary import EOS
from tests.running_text import write_text_recipe

TOKENIZER_FOLDER = [
    "Quis est in horto?",
    "",
    "Caecilius \u2581 \u4e2d\u6587 \ue000 in horto est.",
] * 3
TOKENIZERS = [
    WordTokenizerConfig(),
    CharacterTokenizerConfig(),
    SubwordTokenizerConfig(vocab_size=300),
]
each_tokenizer = pytest.mark.parametrize("config", TOKENIZERS, ids=lambda config: config.type)
HOW = build_sampling_options(temperature=1.0, top_k=None, top_p=1.0)


def untrained(config):
    """A writer that knows nothing yet: whatever can be drawn is drawn."""
    tokenizer = config.train(TOKENIZER_FOLDER)
    model = LanguageModelConfig(backbone=RecurrentBackboneConfig(hidden_size=8), embedding_size=4)
    size = len(tokenizer)
    built = model.build(source_vocab_size=size, target_vocab_size=size)
    return TextGenerator(built, tokenizer, LMBatchingConfig(context_length=10))


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learned")
    heedful.train(str(write_text_recipe(folder)), folder / "run")
    return heedful.load(folder / "run", device="cpu")


@pytest.fixture(scope="module")
def filler(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filler")
    recipe = write_text_recipe(folder, "masked-language-model", tokenizer="word", steps=200)
    heedful.train(str(recipe), folder / "run")
    return heedful.load(folder / "run", device="cpu")


@each_tokenizer
@pytest.mark.parametrize("prompt", ["", "Quis", "in horto\n", "a\nin", "\n\n"])
def test_a_stream_a_sample_and_a_whole_are_the_same_text(config, prompt):
    writer = untrained(config)
    whole = writer.generate(prompt, length=60, seed=3)
    assert prompt + "".join(writer.stream(prompt, length=60, options=HOW, seed=3)) == whole
    samples = writer.generate_samples(prompt, 3, length=60, options=HOW, seed=3)
    assert samples[0] == whole
    assert len(set(samples)) == 3
    assert whole.startswith(prompt)


@each_tokenizer
def test_a_text_is_made_of_the_tokens_that_were_drawn(config):
    """Line ends are drawn like other tokens; between them each line is put together."""
    writer = untrained(config)
    ids = writer.tokenizer.encode_batch(TOKENIZER_FOLDER)
    tokens = [token for line in ids for token in (*line, EOS)]
    assert (
        "".join(stream_text(writer.tokenizer, [EOS], tokens)) == "\n".join(TOKENIZER_FOLDER) + "\n"
    )
    assert "\ufffd" not in "".join(stream_text(writer.tokenizer, [EOS], tokens))


def test_half_a_character_waits_for_the_other_half():
    tokenizer = SubwordTokenizerConfig(vocab_size=300).train(["abc"])
    ids = tokenizer.encode("a\u4e2d")
    assert list(stream_text(tokenizer, [EOS], ids)) == ["a", "\u4e2d"]
    assert list(stream_text(tokenizer, [EOS], ids[:-1])) == ["a", "\ufffd"]


@each_tokenizer
def test_no_text_holds_what_is_no_text(config):
    writer = untrained(config)
    text = writer.generate(length=300, temperature=5.0)
    assert not any(name in text for name in ("<pad>", "<unk>", "<s>"))


def test_it_goes_on_as_the_text_did(learned):
    assert learned.generate("abcd e", length=10, temperature=0) == "abcd efgh\nefgh i"


def test_the_length_is_counted_in_tokens_and_goes_beyond_the_context(learned):
    assert learned.lm_batching.context_length == 16
    assert len(learned.generate("abcd", length=100)) == 104


def test_a_text_like_those_learned_surprises_less(learned):
    known, unknown = (learned.evaluate([line])[0].value for line in ("abcd efgh", "hgfe dcba"))
    assert known < unknown
    assert [metric.name for metric in learned.evaluate(["abcd efgh"])] == [
        "nats per token",
        "perplexity per token",
        "perplexity per word",
        "perplexity per character",
        "bits per character",
    ]
    assert learned.evaluate(["abx"])[0].signature == "context:16|stride:half|unknown:1"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("temperature", -1.0, "cannot be -1.0\n  give 0 or more; 0 takes the likeliest token"),
        ("top_k", 0, "cannot be 0\n  give 1 or more, or nothing to keep every token"),
        ("top_p", 0.0, "cannot be 0.0\n  give more than 0 and at most 1, which keeps every token"),
        ("top_p", 1.5, "cannot be 1.5\n  give more than 0 and at most 1, which keeps every token"),
    ],
)
def test_what_cannot_be_drawn_by_is_refused(learned, name, value, message):
    with pytest.raises(ConfigError) as caught:
        learned.generate(**{name: value})
    assert str(caught.value) == f"{name}: {message}"


def test_gaps_are_filled(filler):
    first, second = filler.fill_mask("abcd [MASK]\nefgh [MASK]", count=2)
    assert first[0].token == "efgh"
    assert second[0].token == "ijkl"
    assert first[0].probability > 0.5 > first[1].probability


def test_hidden_tokens_of_a_text_are_found(filler):
    lines = ["abcd efgh", "efgh ijkl", "ijkl abcd"] * 10
    total_nll, _, right = filler.evaluate(lines)
    assert (total_nll.name, right.name) == ("nats per token", "token accuracy")
    assert right.value > 50
    assert filler.evaluate(lines) == filler.evaluate(lines)
    assert total_nll.signature == "context:16|chosen:0.15|hidden:0.8|replaced:0.1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("abcd efgh", "tokenizers: there is no [MASK] in it\n  write [MASK] where one is wanted"),
        (
            "abcd [MASK] zebra",
            "tokenizers: the model does not know all of its words, and cannot tell them from a mask\n"
            "  use words that the model was trained on",
        ),
    ],
)
def test_a_text_that_cannot_be_filled_is_refused(filler, text, message):
    with pytest.raises(DataError) as caught:
        filler.fill_mask(text)
    assert str(caught.value) == message


@each_tokenizer
def test_a_mask_is_one_token_wherever_it_stands(config):
    tokenizer = config.train(TOKENIZER_FOLDER)
    size = len(tokenizer)
    model = MaskedLanguageModelConfig(
        encoder=RecurrentEncoderConfig(embedding_size=4, hidden_size=4), tie_embeddings=False
    ).build(source_vocab_size=size, target_vocab_size=size)
    writer = MaskFiller(model, tokenizer, LMBatchingConfig(), MaskingConfig())
    for text in ("[MASK]", "in [MASK] est", "in horto [MASK].", "[MASK][MASK]", "est\n[MASK]\nin"):
        found = writer.fill_mask(text, top_k=3)
        assert [len(each) for each in found] == [3] * text.count("[MASK]")
        assert all(0 < each.probability < 1 for candidates in found for each in candidates)
