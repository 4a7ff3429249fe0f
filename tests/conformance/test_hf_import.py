"""Imported Hugging Face models: hidden states, attention weights and outputs equal the original."""

import pytest
import torch

import heedful
from heedful.conversion.importing import import_run
from heedful.decoding.requests import Request
from heedful.inspection.attention_trace import trace_attention
from heedful.runs import load_run
from heedful.tokenization.vocabulary import BOS, EOS, PAD, UNK
from tests.hf_models import SOURCE_TEXTS, quick_and_wide, write_bart, write_marian

CLOSE = {"rtol": 0, "atol": 1e-5}  # their sinusoids are in float32

TEXTS = [*SOURCE_TEXTS, "leo", "in silva xyz magna!"]
VARIED = {"no_repeat_ngram_size": 2, "length_penalty": 0.6, "min_length": 4}
MARIAN_VARIANTS = {
    "plain": {},
    "scaled": {"scale_embedding": True, "activation_function": "swish", "generation": VARIED},
    "relu": {"activation_function": "relu", "generation": VARIED | {"early_stopping": True}},
    "gelu-tanh": {"activation_function": "gelu_new"},
    "tied, not shared": {"share_encoder_decoder_embeddings": False, "generation": VARIED},
    "two vocabularies": {"share_encoder_decoder_embeddings": False, "two_vocabularies": True},
    "untied": {"tie_word_embeddings": False, "share_encoder_decoder_embeddings": False},
    "odd size": {"d_model": 12, "decoder_attention_heads": 3},
}
BART_VARIANTS = {
    "plain": {},
    "scaled": {"scale_embedding": True, "generation": {"length_penalty": 2.0}},
    "no forced token": {"forced_bos": False, "activation_function": "relu"},
    "untied": {"tie_word_embeddings": False, "generation": {"early_stopping": True}},
    "other first token": {"decoder_start_token_id": 0, "forced_bos": False},
}
ENGLISH_TEXTS = ["The girl walks in the garden", "Don't walk at 12:30!", "a", "\u6211 lion's"]


@pytest.fixture(params=quick_and_wide(MARIAN_VARIANTS, ["scaled", "two vocabularies"]))
def marian(request, tmp_path):
    model = write_marian(tmp_path / "model", **request.param)
    import_run(tmp_path / "model", tmp_path / "run")
    from transformers import MarianTokenizer

    return model, MarianTokenizer.from_pretrained(tmp_path / "model"), tmp_path / "run"


def vocab_ids(tokenizer, names, model):
    """Return our id of each of theirs, by the names of the tokens alone."""
    displayed = {
        name: index for index, name in enumerate(tokenizer.ids_to_tokens(range(len(tokenizer))))
    }
    special = {model.config.pad_token_id: PAD, model.config.eos_token_id: EOS}
    ids = [displayed.get(name, UNK) for name in names]
    return torch.tensor([special.get(index, our_id) for index, our_id in enumerate(ids)])


def check_states_weights_and_log_probs(model, inputs, run, source_ids, target_ids):
    """Compare the states of all layers, all attention weights and all log-probabilities."""
    model.set_attn_implementation("eager")
    model.double()
    starts = torch.tensor([[model.config.decoder_start_token_id]] * len(inputs["input_ids"]))
    targets = torch.cat([starts, torch.arange(5, 11).expand(len(starts), -1)], dim=1)
    options = {"output_hidden_states": True, "output_attentions": True, "use_cache": False}
    is_real = inputs["attention_mask"].bool()
    our_targets = target_ids[targets]
    our_targets[:, 0] = BOS
    ours = load_run(run).model.double()
    ours.encoder.returns_layer_inputs = True
    with torch.no_grad(), trace_attention(ours) as records:
        expected = model(**inputs, decoder_input_ids=targets, **options)
        sources = source_ids[inputs["input_ids"]]
        encoded = ours.encoder(sources, is_real.sum(1))
        decoded = ours.decoder(our_targets, encoded, need_weights=True)
    states = [*encoded.layer_inputs, encoded.states]
    for actual, their in zip(states, expected.encoder_hidden_states, strict=True):
        torch.testing.assert_close(actual[is_real], their[is_real], **CLOSE)
    theirs = [*expected.encoder_attentions]
    for pair in zip(expected.decoder_attentions, expected.cross_attentions, strict=True):
        theirs += pair
    for record, their in zip(records, theirs, strict=True):
        is_shown = is_real[:, None, :, None] if record.module_path.startswith("encoder") else True
        torch.testing.assert_close(record.weights * is_shown, their * is_shown, **CLOSE)
    log_probs = decoded.log_probs[..., target_ids]
    torch.testing.assert_close(log_probs, expected.logits.log_softmax(-1), **CLOSE)
    model.float()


def check_outputs(model, tokenizer, inputs, run, texts, beam_size, foreign_names):
    """Compare greedy search and beam search, token for token, and the decoded texts."""
    translator = heedful.load(run, settings={"decoding.beam_size": beam_size})
    outputs = model.generate(**inputs, num_beams=beam_size)
    for translation, ids in zip(translator.translate(texts), outputs.tolist(), strict=True):
        tokens = ids[1 : ids.index(model.config.eos_token_id, 1)]
        # At the limit their EOS costs nothing; here it costs what it does elsewhere.
        if beam_size > 1 and len(tokens) + 2 == model.generation_config.max_length:
            continue
        assert translation.tokens == [foreign_names[token] for token in tokens]
        if "<unk>" not in translation.tokens:  # which their text leaves out
            assert translation.text == tokenizer.decode(ids, skip_special_tokens=True)


def test_marian_matches_in_states_weights_and_outputs(marian):
    model, tokenizer, run = marian
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    names = list(tokenizer.encoder), list(getattr(tokenizer, "target_encoder", tokenizer.encoder))
    ours = load_run(run).tokenizers
    ids = [vocab_ids(side, side_names, model) for side, side_names in zip(ours, names, strict=True)]
    check_states_weights_and_log_probs(model, inputs, run, *ids)
    for beam_size in (1, 4):
        check_outputs(model, tokenizer, inputs, run, TEXTS, beam_size, names[1])


@pytest.mark.parametrize("settings", quick_and_wide(BART_VARIANTS, ["plain"]))
def test_bart_matches_in_states_weights_and_outputs(settings, tmp_path):
    from transformers import PreTrainedTokenizerFast

    model, run = write_bart(tmp_path / "model", **settings), tmp_path / "run"
    import_run(tmp_path / "model", run)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "model" / "tokenizer.json"),
        **{"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"},
        bos_token="<s>",
    )
    inputs = tokenizer(ENGLISH_TEXTS, return_tensors="pt", padding=True)
    inputs.pop("token_type_ids", None)
    ours = load_run(run).tokenizers.target
    # Ours are PAD, UNK, BOS and EOS, then the others in order; theirs <s>, <pad>, </s>, <unk>.
    ids = torch.tensor([4, PAD, EOS, UNK, *range(5, len(ours))])
    for text, row in zip(ENGLISH_TEXTS, tokenizer(ENGLISH_TEXTS).input_ids, strict=True):
        assert [*ours.encode(text), EOS] == ids[row].tolist()
    check_states_weights_and_log_probs(model, inputs, run, ids, ids)
    names = dict(zip(range(len(ids)), ours.ids_to_tokens(ids.tolist()), strict=True))
    for beam_size in (1, 4):
        check_outputs(model, tokenizer, inputs, run, ENGLISH_TEXTS, beam_size, names)


def test_special_token_behind_the_last_row_is_dropped(tmp_path):
    """As in BART models for summaries, which have no row for <mask>."""
    folder = tmp_path / "model"
    write_bart(folder, has_mask_row=False)
    import_run(folder, tmp_path / "run")
    tokenizers = load_run(tmp_path / "run").tokenizers
    assert "<mask>" not in tokenizers.source.vocabulary.tokens
    assert tokenizers.source.decode(tokenizers.source.encode(ENGLISH_TEXTS[0])) == ENGLISH_TEXTS[0]


def test_phrases_have_no_first_token(tmp_path):
    write_bart(tmp_path / "model")
    import_run(tmp_path / "model", tmp_path / "run")
    translator = heedful.load(tmp_path / "run")
    outputs = translator.translate([Request("a lion", required_phrases=["the garden"])])
    assert "the garden" in outputs[0].text
