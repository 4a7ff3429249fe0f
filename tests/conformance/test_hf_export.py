"""Runs exported to Hugging Face: transformers generates equal tokens, and the way back is exact."""

import pytest
import torch

from heedful.conversion.exporting import export_run, load_run
from heedful.conversion.importing import import_run
from heedful.tokenization.vocabulary import EOS
from tests.commands import write_random_run
from tests.hf_models import (
    SOURCE_TEXTS,
    TARGET_TEXTS,
    TRANSFORMER,
    quick_and_wide,
    transformer_settings,
)

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
    if recipe["tokenizers"] is not WORDS:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        for text in [*SOURCE_TEXTS, "leo \u20ac  x"]:
            assert tokenizer(text).input_ids == [*ours.tokenizers.source.encode(text), EOS]
        for text in TARGET_TEXTS:
            assert tokenizer.decode(ours.tokenizers.target.encode(text)) == text
    else:
        assert not (folder / "tokenizer_config.json").exists()


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
