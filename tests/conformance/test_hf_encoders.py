"""BERT, RoBERTa, DistilBERT and GPT-2 of Hugging Face, imported: equal states, weights, outputs."""

import json

import pytest
import torch
from tokenizers import Tokenizer

import heedful
from heedful.conversion.hf_folder import HFFolder
from heedful.conversion.hf_tokenizers import read_hf_tokenizer
from heedful.conversion.importing import import_run
from heedful.data.text.token_stream import LMBatch
from heedful.inspection.attention_trace import trace_attention
from heedful.runs import load_run
from heedful.tokenization.vocabulary import BOS, EOS, NUM_SPECIAL_TOKENS, UNK
from tests.hf_encoders import (
    BERT_SPECIAL,
    ROBERTA_SPECIAL,
    TRICKY_TEXTS,
    write_byte_level_bpe,
    write_encoder,
    write_gpt2,
    write_wordpiece,
)

CLOSE = {"rtol": 0, "atol": 1e-10}  # float64
TEXTS = ["the lion walks in the garden.", "unhappy", "12 lions !"]
FAMILY = {
    "bert": ("bert", {}),
    "bert, other settings": ("bert", {"layer_norm_eps": 1e-3, "type_vocab_size": 3}),
    "bert, gelu-tanh": ("bert", {"hidden_act": "gelu_new", "has_head": False}),
    "roberta": ("roberta", {}),
    "distilbert": ("distilbert", {}),
    "distilbert, sinusoids": ("distilbert", {"sinusoidal_pos_embds": True, "has_head": False}),
}
WORDPIECE = {
    "lower case": {},
    "cased": {"lowercase": False},
    "cased, no accents": {"lowercase": False, "strip_accents": True},
    "lower case with accents": {"strip_accents": False},
    "no Chinese words": {"handle_chinese_chars": False},
    "control characters": {"clean_text": False},
}


def their_tokens(folder, text):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return tokenizer.encode(text, add_special_tokens=False)


def our_tokenizer(folder):
    (folder / "config.json").write_text("{}")
    size = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    read = read_hf_tokenizer(HFFolder(folder), vocab_size=size)
    special = set(read.special_ids.values())
    return read.build([token for index, token in enumerate(read.tokens) if index not in special])


@pytest.mark.parametrize("normalizer", WORDPIECE.values(), ids=WORDPIECE)
def test_wordpiece_tokens_match(normalizer, tmp_path):
    write_wordpiece(tmp_path, **normalizer)
    tokenizer = our_tokenizer(tmp_path)
    for text in TRICKY_TEXTS:
        expected = ["<unk>" if t == "[UNK]" else t for t in their_tokens(tmp_path, text).tokens]
        assert tokenizer.ids_to_tokens(tokenizer.encode(text)) == expected, text


@pytest.mark.parametrize("add_prefix_space", [False, True])
def test_byte_level_bpe_tokens_match_and_decoded_exactly(add_prefix_space, tmp_path):
    write_byte_level_bpe(tmp_path, ROBERTA_SPECIAL, add_prefix_space=add_prefix_space)
    tokenizer = our_tokenizer(tmp_path)
    for text in TRICKY_TEXTS:
        tokens = [
            tokenizer.vocabulary.tokens[i - NUM_SPECIAL_TOKENS] for i in tokenizer.encode(text)
        ]
        assert tokens == their_tokens(tmp_path, text).tokens, text
        assert tokenizer.decode(tokenizer.encode(text)) == tokenizer.normalizer(text)
        assert tokenizer.normalizer(text) == (text.removeprefix(" ") if add_prefix_space else text)


@pytest.mark.parametrize("special", [BERT_SPECIAL, ROBERTA_SPECIAL], ids=["bert", "roberta"])
def test_text_never_becomes_a_special_token(special, tmp_path):
    write = write_wordpiece if special is BERT_SPECIAL else write_byte_level_bpe
    write(tmp_path, *([] if special is BERT_SPECIAL else [special]))
    tokenizer = our_tokenizer(tmp_path)
    ids = tokenizer.encode("a " + " ".join(special))
    assert min(ids) >= NUM_SPECIAL_TOKENS
    assert tokenizer.decode(ids).replace(" ", "").lower() == "a" + "".join(special).lower()


@pytest.fixture(params=FAMILY.values(), ids=FAMILY)
def encoder(request, tmp_path):
    model_type, settings = request.param
    return write_encoder(tmp_path / "model", model_type, **settings), tmp_path / "model"


def their_inputs(folder, model, texts):
    """Return input ids and mask of texts with their special tokens, padded."""
    special = ROBERTA_SPECIAL if model.config.model_type == "roberta" else BERT_SPECIAL
    names = special if special is ROBERTA_SPECIAL else [special[2], special[0], special[3]]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    cls, pad, sep = map(tokenizer.token_to_id, names[:3])
    rows = [[cls, *their_tokens(folder, text).ids, sep] for text in texts]
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows])
    return ids, torch.tensor([[index < len(row) for index in range(width)] for row in rows])


def test_encoder_matches_in_states_and_attention_weights(encoder):
    model, folder = encoder
    from heedful.conversion.interface import build_model
    from heedful.conversion.registry import read_encoder

    imported = read_encoder(folder)
    ours = build_model(imported.recipe, imported.tokenizers).double()
    ours.load_state_dict(imported.weights, strict=False)
    ids, mask = their_inputs(folder, model, TEXTS)
    base = getattr(model, model.config.model_type, model).double()
    base.set_attn_implementation("eager")
    encoded = imported.tokenizers.source.encode_batch(TEXTS)
    rows = [torch.tensor([BOS, *row, EOS]) for row in encoded]
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    ours.encoder.returns_layer_inputs = True
    with torch.no_grad(), trace_attention(ours) as records:
        expected = base(ids, attention_mask=mask, output_hidden_states=True, output_attentions=True)
        output = ours.encoder(tokens, mask.sum(1))
    states = [*output.layer_inputs, output.states]
    for actual, their in zip(states, expected.hidden_states, strict=True):
        torch.testing.assert_close(actual[mask], their[mask], **CLOSE)
    is_shown = mask[:, None, :, None]
    for record, their in zip(records, expected.attentions, strict=True):
        torch.testing.assert_close(record.weights * is_shown, their * is_shown, **CLOSE)


@pytest.mark.parametrize("model_type", ["bert", "roberta", "distilbert"])
def test_imported_masked_language_model_matches_in_logits(model_type, tmp_path):
    folder, run = tmp_path / "model", tmp_path / "run"
    model = write_encoder(folder, model_type).double()
    import_run(folder, run)
    loaded = load_run(run)
    ids, _ = their_inputs(folder, model, TEXTS[:1])
    mask = "<mask>" if model_type == "roberta" else "[MASK]"
    mask_id = Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id(mask)
    ids[0, 3] = mask_id
    tokens = torch.tensor([*loaded.tokenizers.source.encode(TEXTS[0]), EOS])
    tokens[2] = loaded.model.mask_id
    with torch.no_grad():
        logits = model(ids).logits[0, 1:]
        log_probs = loaded.model.double().predict(tokens)
    order = our_rows(folder, model_type, loaded.tokenizers.source)
    torch.testing.assert_close(log_probs, logits[:, order].log_softmax(-1), **CLOSE)


def our_rows(folder, model_type, tokenizer):
    """Return their id of each of our tokens but the mask, by the names of the tokens alone."""
    their_ids = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()
    names = ["<pad>", "<unk>", "<s>", "</s>"] if model_type == "roberta" else BERT_SPECIAL[:4]
    return [their_ids[token] for token in (*names, *tokenizer.vocabulary.tokens)]


def test_masks_filled_as_by_the_original(tmp_path):
    folder, run = tmp_path / "model", tmp_path / "run"
    model = write_encoder(folder, "roberta")
    import_run(folder, run)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = [0, *their_tokens(folder, "The lion").ids, tokenizer.token_to_id("<mask>")]
    ids += [*their_tokens(folder, " in the garden").ids, 2]
    position = ids.index(tokenizer.token_to_id("<mask>"))
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, position]
    logits[tokenizer.token_to_id("<mask>")] = -torch.inf  # a mask is never predicted here
    ((best, *_),) = heedful.load(run).fill_mask("The lion [MASK] in the garden")
    probabilities = logits.softmax(-1)
    assert best.probability == pytest.approx(probabilities.max().item(), rel=1e-5)
    expected = tokenizer.decode([int(probabilities.argmax())], skip_special_tokens=False)
    assert best.token in (expected.strip() or " ", "<unk>", "<s>", "</s>", "<pad>")


@pytest.mark.parametrize("lstrip", [True, False])
def test_mask_token_of_the_model_is_understood_as_by_the_tokenizer(lstrip, tmp_path):
    folder, run = tmp_path / "model", tmp_path / "run"
    write_encoder(folder, "roberta")
    special = json.loads((folder / "special_tokens_map.json").read_text())
    special["mask_token"] = {"content": "<mask>", "lstrip": lstrip}
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    import_run(folder, run)
    filler = heedful.load(run)
    text = "The lion  <mask> in the garden"
    (axis,) = filler.predict([text], need_layers=True)
    settings = json.loads((folder / "tokenizer.json").read_text())
    (mask,) = (token for token in settings["added_tokens"] if token["content"] == "<mask>")
    mask["lstrip"] = lstrip
    ids = Tokenizer.from_str(json.dumps(settings)).encode(text).ids
    assert axis.tokens.index("[MASK]") == ids.index(mask["id"])
    assert len(axis.tokens) == len(ids) + 1  # EOS
    assert filler.fill_mask(text) == filler.fill_mask(text.replace("<mask>", "[MASK]"))


GPT2 = {
    "plain": {},
    "untied": {"tie_word_embeddings": False, "n_inner": 20},
    "relu": {"activation_function": "relu", "layer_norm_epsilon": 1e-3},
}


@pytest.mark.parametrize("settings", GPT2.values(), ids=GPT2)
def test_imported_gpt2_matches_in_log_probs_weights_and_greedy_text(settings, tmp_path):
    folder, run = tmp_path / "model", tmp_path / "run"
    model = write_gpt2(folder, **settings)
    import_run(folder, run)
    prompt = "The lion's asleep\nin the"
    ids = torch.tensor([their_tokens(folder, prompt).ids])
    generated = model.generate(
        ids, attention_mask=ids >= 0, max_new_tokens=20, do_sample=False, eos_token_id=-1
    )
    text = Tokenizer.from_file(str(folder / "tokenizer.json")).decode(generated[0].tolist())
    ours = heedful.load(run).generate(prompt, max_new_tokens=20, temperature=0)
    assert ours.replace("\n", "") == text.replace("\n", "")
    loaded = load_run(run)
    tokens = torch.tensor([loaded.tokenizers.source.encode(prompt)])
    model.double().set_attn_implementation("eager")
    with torch.no_grad(), trace_attention(loaded.model.double()) as records:
        expected = model(ids, output_attentions=True)
        log_probs = loaded.model(LMBatch(tokens, tokens)).log_probs
    order = [0, *(row for row in range(expected.logits.size(-1)) if row != 0)]
    ours_at = [EOS, *range(NUM_SPECIAL_TOKENS, log_probs.size(-1))]
    their_log_probs = expected.logits.log_softmax(-1)[..., order]
    torch.testing.assert_close(log_probs[..., ours_at], their_log_probs, **CLOSE)
    assert (log_probs[..., [0, UNK, BOS]] < -1000).all()
    for record, their in zip(records, expected.attentions, strict=True):
        torch.testing.assert_close(record.weights, their, **CLOSE)
