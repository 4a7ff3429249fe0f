"""Runs exported to Hugging Face: transformers generates equal tokens, and the way back is exact."""

import json
from functools import partial

import pytest
import torch

from heedful.conversion.exporting import export_run
from heedful.conversion.hf_folder import HFFolder
from heedful.conversion.hf_tokenizer_files import has_tokenizer_files, write_tokenizer_files
from heedful.conversion.importing import import_run
from heedful.errors import CorruptRunError, DataError, RunError
from heedful.experiment import train
from heedful.runs import Run, load, load_run
from heedful.storage.state_dict import unique_weights
from heedful.tokenization.tokenizer_pair import SharedTokenizerConfig
from heedful.tokenization.vocabulary import EOS, UNK
from tests.commands import write_random_run
from tests.documents.markdown import python_of
from tests.hf_encoders import CORPUS as HF_TEXTS
from tests.hf_encoders import write_encoder, write_gpt2
from tests.hf_models import (
    SOURCE_TEXTS,
    TARGET_TEXTS,
    TRANSFORMER,
    quick_and_wide,
    transformer_settings,
)
from tests.laws.test_tokenizers import CORPUS, EDGE_CASES

pytestmark = pytest.mark.wide

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
@pytest.mark.wide
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
def test_auto_tokenizer_returns_the_ids_of_the_run(kind, normalization, tmp_path):
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


def test_import_without_the_files_of_heedful_returns_an_equal_model(tmp_path):
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


# ----- language models that were imported

LANGUAGE_MODELS = {
    "gpt2": (write_gpt2, {}),
    "gpt2, untied": (write_gpt2, {"tie_word_embeddings": False, "n_inner": 20}),
    "bert": (partial(write_encoder, model_type="bert"), {"hidden_dropout_prob": 0.2}),
    "roberta": (partial(write_encoder, model_type="roberta"), {}),
    "distilbert": (partial(write_encoder, model_type="distilbert"), {"sinusoidal_pos_embds": True}),
}
NOT_SETTINGS = {"_name_or_path", "transformers_version"}


def open_language_model(folder):
    """Return model and tokenizer as transformers opens them."""
    import transformers

    is_gpt2 = json.loads((folder / "config.json").read_text())["model_type"] == "gpt2"
    kind = "AutoModelForCausalLM" if is_gpt2 else "AutoModelForMaskedLM"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return getattr(transformers, kind).from_pretrained(folder).eval(), tokenizer


def settings_of(model):
    return {k: v for k, v in model.config.to_dict().items() if k not in NOT_SETTINGS}


@pytest.mark.parametrize("variant", quick_and_wide(LANGUAGE_MODELS, ["gpt2", "bert"]))
def test_imported_language_model_goes_back_as_it_came(variant, tmp_path):
    write, settings = variant
    folder, run, back = (tmp_path / name for name in ("model", "run", "back"))
    original = write(folder, **settings)
    if original.config.model_type == "roberta":  # rows that no token has
        positions = original.roberta.embeddings.position_embeddings.weight
        positions.data[: original.config.pad_token_id + 1] = 0
    original.save_pretrained(folder)
    import_run(folder, run)
    compared = export_run(run, "hf", back)
    assert compared == "log-probabilities of 8 sample texts equal those of the run"
    (theirs, their_tokenizer), (model, tokenizer) = map(open_language_model, (folder, back))
    assert settings_of(model) == settings_of(theirs)
    expected = theirs.state_dict()
    assert model.state_dict().keys() == expected.keys()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, expected[name]), name
    for text in HF_TEXTS:
        ids = tokenizer(text).input_ids
        assert ids == their_tokenizer(text).input_ids
        assert tokenizer.decode(ids) == their_tokenizer.decode(ids)
    for path in HFFolder(folder).small_files:
        assert (back / path.name).read_bytes() == path.read_bytes()
    with torch.no_grad():
        assert torch.equal(*(m(torch.tensor([[9, 8, 7, 6]])).logits for m in (model, theirs)))


def test_files_of_the_original_verified_with_the_run(tmp_path):
    write_gpt2(tmp_path / "model")
    import_run(tmp_path / "model", tmp_path / "run")
    (tmp_path / "run" / "original" / "config.json").write_text("{}")
    with pytest.raises(CorruptRunError, match="bytes"):
        export_run(tmp_path / "run", "hf", tmp_path / "back")


@pytest.mark.parametrize("model_type", ["gpt2", pytest.param("bert", marks=pytest.mark.wide)])
def test_language_model_that_was_trained_further_keeps_settings(model_type, tmp_path):
    write, _ = LANGUAGE_MODELS[model_type]
    folder, run, tuned = (tmp_path / name for name in ("model", "run", "tuned"))
    write(folder)
    import_run(folder, run)
    (tmp_path / "text").write_text("\n".join(HF_TEXTS * 20))
    settings = {
        "training.init_from": str(run),
        "training.max_steps": 2,
        "data.lm_batching.context_length": 16,
    }
    train(run / "config.yaml", tuned, text=tmp_path / "text", device="cpu", settings=settings)
    export_run(tuned, "hf", tmp_path / "back")
    (before, _), (after, _) = map(open_language_model, (folder, tmp_path / "back"))
    assert settings_of(before) == settings_of(after)
    weights = after.state_dict()
    changed = [name for name, w in before.state_dict().items() if not torch.equal(w, weights[name])]
    assert any("mlp" in name or "intermediate" in name for name in changed)


def test_changed_bias_that_gpt2_does_not_have_is_rejected(tmp_path):
    write_gpt2(tmp_path / "model")
    import_run(tmp_path / "model", tmp_path / "run")
    loaded = load_run(tmp_path / "run")
    with torch.no_grad():
        loaded.model.lm_head.bias += 1
    Run(tmp_path / "run").save_model(unique_weights(loaded.model), step=1)
    with pytest.raises(RunError, match="has changed the bias of the output layer, and GPT-2 has"):
        export_run(tmp_path / "run", "hf", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_imported_language_model_with_other_settings_is_rejected(tmp_path):
    write_gpt2(tmp_path / "model")
    import_run(tmp_path / "model", tmp_path / "run")
    run = Run(tmp_path / "run")
    run.replace_recipe(run.read_recipe({"model.backbone.norm_eps": 0.5}))
    with pytest.raises(DataError, match="log-probabilities differ"):
        export_run(tmp_path / "run", "hf", tmp_path / "back")
