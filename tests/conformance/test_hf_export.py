"""Runs exported to Hugging Face: transformers generates equal tokens, and the way back is exact."""

import pytest
import torch

from heedful.conversion.exporting import export_run, load_run
from heedful.conversion.hf_tokenizer_files import has_tokenizer_files, write_tokenizer_files
from heedful.conversion.importing import import_run
from heedful.runs import load
from heedful.tokenization.tokenizer_pair import SharedTokenizerConfig
from heedful.tokenization.vocabulary import EOS, UNK
from tests.commands import write_random_run
from tests.documents.markdown import python_of
from tests.hf_models import (
    SOURCE_TEXTS,
    TARGET_TEXTS,
    TRANSFORMER,
    quick_and_wide,
    transformer_settings,
)
from tests.laws.test_tokenizers import CORPUS, EDGE_CASES

LEARNED = {"positional_encoding": {"type": "learned", "max_positions": 80}, "embedding_norm": True}
SPLIT = {"positional_encoding": {"type": "sinusoidal", "layout": "split"}}
BIASED = {
    "attention": {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2, "bias": True}}
}
GELU = {"feed_forward": [{"intermediate_size": 24, "activation": "gelu-tanh"}]}
TWO = {
    side: {"type": "subword", "vocab_size": size}
    for side, size in (("source", 280), ("target", 285))
}
WORDS = {"type": "separate", "source": {"type": "word"}, "target": {"type": "word"}}
VARIANTS = {
    "marian, shared": (transformer_settings(), "marian"),
    "marian, tied": (
        transformer_settings(
            embeddings="tied", tokenizers={"type": "separate", **TWO}, **TRANSFORMER | SPLIT
        ),
        "marian",
    ),
    "marian, separate words": (
        transformer_settings(embeddings="separate", tokenizers=WORDS, **TRANSFORMER | BIASED),
        "marian",
    ),
    "bart, shared": (transformer_settings(**TRANSFORMER | LEARNED | GELU), "bart"),
    "bart, tied": (
        transformer_settings(
            embeddings="tied", **TRANSFORMER | LEARNED | {"scale_embeddings": False}
        ),
        "bart",
    ),
}


@pytest.mark.parametrize("variant", quick_and_wide(VARIANTS, ["marian, tied", "bart, shared"]))
def test_export_opens_in_transformers_and_comes_back_bit_equal(variant, tmp_path):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    recipe, model_type = variant
    run = write_random_run(tmp_path / "run", recipe, SOURCE_TEXTS, TARGET_TEXTS, seed=0)
    folder = tmp_path / "hf"
    compared = export_run(run, "hf", folder)
    assert compared == "greedy and beam outputs of 8 sample texts equal those of the run"
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert model.config.model_type == model_type
    import_run(folder, tmp_path / "back")
    for name in ("config.yaml", "weights.safetensors"):
        assert (tmp_path / "back" / name).read_bytes() == (run / name).read_bytes()
    ours = load_run(run)
    tokenizer = target = AutoTokenizer.from_pretrained(folder)
    if recipe["tokenizers"] is WORDS:
        target = AutoTokenizer.from_pretrained(folder / "target_tokenizer")
    for text in [*SOURCE_TEXTS, "leo \u20ac  x"]:
        assert tokenizer(text).input_ids == [*ours.tokenizers.source.encode(text), EOS]
    for text in TARGET_TEXTS:
        assert target.decode(ours.tokenizers.target.encode(text)) == text


@pytest.mark.parametrize(
    "tokenizers", [WORDS, {"type": "separate", **TWO}], ids=["words", "subwords"]
)
def test_program_of_the_card_prints_the_translation(tokenizers, tmp_path, monkeypatch, capsys):
    """Without special tokens, and with the target tokenizer."""
    recipe = transformer_settings(embeddings="separate", tokenizers=tokenizers, **TRANSFORMER)
    run = write_random_run(tmp_path / "run", recipe, SOURCE_TEXTS, TARGET_TEXTS, seed=0)
    export_run(run, "hf", tmp_path / "hf")
    text = SOURCE_TEXTS[0]
    program = python_of((tmp_path / "hf" / "README.md").read_text()).replace("a text", text)
    program = program.replace("**inputs", "**inputs, num_beams=1, max_new_tokens=9")
    monkeypatch.chdir(tmp_path / "hf")
    exec(program, {})
    settings = {"decoding.beam_size": 1, "decoding.max_length": 8}
    expected = load(run, device="cpu", settings=settings).translate(text).text
    assert capsys.readouterr().out == f"{expected}\n"
    assert expected


VOCABULARY_TYPES = ["word", "whitespace", "character", "label", "smiles"]
NORMALIZATIONS = [{}, {"unicode": "nfkc", "lowercase": True, "strip": True}]


@pytest.mark.parametrize("normalization", NORMALIZATIONS, ids=["plain", "normalized"])
@pytest.mark.parametrize("kind", VOCABULARY_TYPES)
def test_auto_tokenizer_gives_the_ids_of_the_run(kind, normalization, tmp_path):
    from transformers import AutoTokenizer

    options = {"strict": False} if kind == "smiles" else {}
    tokenizer = {"type": kind, "normalization": normalization, **options}
    config = SharedTokenizerConfig.model_validate({"tokenizer": tokenizer})
    texts = [*CORPUS, *EDGE_CASES.values()]
    pair = config.train(texts[::2], texts[1::3])
    write_tokenizer_files(pair, tmp_path, config)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in [*texts, "VIDIT leonem, quem \u00fcber_1 \u0663 x\u02b0 \u2160\u203f Cl[C@H]"]:
        ids = pair.source.encode(text)
        assert theirs(text).input_ids == [*ids, EOS]
        known = [token for token in ids if token != UNK]
        assert theirs.decode([*known, EOS], skip_special_tokens=True) == pair.source.decode(known)


@pytest.mark.parametrize(
    "tokenizer",
    [
        {"type": "word", "normalization": {"punctuation": "remove"}},
        {"type": "word", "normalization": {"lowercase": True}},  # of Greek, with a final sigma
        {"type": "subword", "vocab_size": 300, "normalization": {"lowercase": True}},
    ],
)
def test_tokenizer_that_transformers_cannot_express_has_no_files(tokenizer, tmp_path):
    config = SharedTokenizerConfig.model_validate({"tokenizer": tokenizer})
    pair = config.train(["\u03bb\u03cc\u03b3\u03bf\u03c2 a b c"], ["a"])
    assert not has_tokenizer_files(pair, config)
    write_tokenizer_files(pair, tmp_path, config)
    assert not any(tmp_path.iterdir())


def test_import_without_the_files_of_heedful_gives_an_equal_model(tmp_path):
    """A folder that another program has written anew has only the files of transformers."""
    run = write_random_run(
        tmp_path / "run", transformer_settings(), SOURCE_TEXTS, TARGET_TEXTS, seed=0
    )
    export_run(run, "hf", tmp_path / "hf")
    (tmp_path / "hf" / "heedful.yaml").unlink()
    import_run(tmp_path / "hf", tmp_path / "back")
    before, after = load_run(run), load_run(tmp_path / "back")
    tokens = torch.tensor([[*before.tokenizers.source.encode(SOURCE_TEXTS[0]), 3]])
    assert tokens[0, :-1].tolist() == after.tokenizers.source.encode(SOURCE_TEXTS[0])
    targets, lengths = torch.tensor([[2, 9, 8, 7]]), torch.tensor([tokens.size(1)])
    outputs = [
        loaded.model.decoder(targets, loaded.model.encoder(tokens, lengths)).log_probs
        for loaded in (before, after)
    ]
    torch.testing.assert_close(*outputs)
