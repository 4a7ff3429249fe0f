"""Folders of small random Hugging Face models, with tokenizers trained on a few lines."""

import io
import json

import pytest
import torch
from sentencepiece import SentencePieceTrainer

from tests.hf_encoders import ROBERTA_SPECIAL, write_byte_level_bpe

SOURCE_TEXTS = ["puella in horto ambulat", "leo magnus in silva dormit", "vidit puella leonem"]
TARGET_TEXTS = ["the girl walks in the garden", "a big lion sleeps in the wood", "the girl saw it"]


def quick_and_wide(variants, quick):
    """Return parameters for pytest: the `quick` variants by name, and the others marked wide."""
    return [
        pytest.param(value, id=name, marks=() if name in quick else pytest.mark.wide)
        for name, value in variants.items()
    ]


SIZES = {
    "d_model": 16,
    "max_position_embeddings": 40,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 20,
}


def randomize(model, seed=0, eos_bias=0.0):
    """Draw all parameters, also norms, biases and the bias of logits; sinusoids stay."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" in name and not weight.requires_grad:
                continue
            is_norm = "norm" in name and name.endswith("weight")
            is_table = "embed" in name or "shared" in name or "lm_head" in name
            weight.normal_(std=0.1 if weight.dim() == 1 else 0.3 if is_table else 0.6)
            weight.add_(1.0 if is_norm else 0.0)
        model.final_logits_bias.normal_(std=0.5)
        model.final_logits_bias[:, model.config.eos_token_id] += eos_bias
    return model.eval()


def train_pieces(texts, vocab_size=40):
    """Return a SentencePiece model in the form of OPUS-MT."""
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        bos_id=-1,
        eos_id=-1,
        pad_id=-1,
        unk_id=0,
        minloglevel=2,
    )
    return model.getvalue()


def pieces_of(model):
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor(model_proto=model)
    return [processor.IdToPiece(index) for index in range(1, len(processor))]


def write_marian(folder, *, two_vocabularies=False, generation=None, **settings):
    """Write a Marian model with random parameters; return it."""
    from transformers import MarianConfig, MarianMTModel

    folder.mkdir(parents=True)
    models = [train_pieces(SOURCE_TEXTS), train_pieces(TARGET_TEXTS)]
    for name, model in zip(("source.spm", "target.spm"), models, strict=True):
        (folder / name).write_bytes(model)
    pieces = [dict.fromkeys(pieces_of(model)) for model in models]
    if not two_vocabularies:
        pieces = [pieces[0] | pieces[1]]
    size = max(map(len, pieces)) + 3
    vocabularies = []
    for own in pieces:
        filler = [f"unused{index}" for index in range(size - 3 - len(own))]
        tokens = ["</s>", "<unk>", *own, *filler, "<pad>"]
        vocabularies.append({token: index for index, token in enumerate(tokens)})
    for name, vocabulary in zip(("vocab.json", "target_vocab.json"), vocabularies, strict=False):
        (folder / name).write_text(json.dumps(vocabulary))
    tokenizer_config = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": two_vocabularies}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    config = MarianConfig(
        **SIZES
        | {"vocab_size": size, "pad_token_id": size - 1, "decoder_start_token_id": size - 1}
        | {"eos_token_id": 0, "forced_eos_token_id": 0}
        | settings
    )
    model = randomize(MarianMTModel(config))
    options = {"max_length": 30, "num_beams": 4, "bad_words_ids": [[size - 1]]} | (generation or {})
    for name, value in options.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(folder)
    return model


def move_mask_to_the_end(tokenizer):
    """Give <mask> the last id of all, as in facebook/bart-large."""
    vocabulary = tokenizer["model"]["vocab"]
    mask = vocabulary["<mask>"]
    for token, index in vocabulary.items():
        vocabulary[token] = index - 1 if index > mask else index
    vocabulary["<mask>"] = len(vocabulary) - 1
    for added in tokenizer["added_tokens"]:
        added["id"] = vocabulary[added["content"]]


def write_bart(folder, *, forced_bos=True, has_mask_row=True, generation=None, **settings):
    """Write a BART model with random parameters; return it."""
    from transformers import BartConfig, BartForConditionalGeneration

    folder.mkdir(parents=True)
    size = write_byte_level_bpe(folder, ROBERTA_SPECIAL)
    post_processor = {
        "type": "RobertaProcessing",
        "sep": ["</s>", 2],
        "cls": ["<s>", 0],
        "trim_offsets": True,
        "add_prefix_space": False,
    }
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    if not has_mask_row:
        move_mask_to_the_end(tokenizer)
        size -= 1
    (folder / "tokenizer.json").write_text(
        json.dumps(tokenizer | {"post_processor": post_processor})
    )
    config = BartConfig(**SIZES | {"vocab_size": size} | settings)
    model = randomize(BartForConditionalGeneration(config), eos_bias=3.0)
    options = {"max_length": 30, "num_beams": 4, "no_repeat_ngram_size": 2}
    options |= {"forced_bos_token_id": 0 if forced_bos else None} | (generation or {})
    for name, value in options.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(folder)
    return model


# ----- our own models that fit into such folders

TRANSFORMER = {
    "type": "transformer",
    "hidden_size": 16,
    "num_layers": 2,
    "attention": {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 4}},
    "feed_forward": [{"intermediate_size": 24}],
}


def transformer_settings(*, embeddings="shared", tokenizers=None, **side):
    """Return the recipe of a Transformer whose encoder and decoder have the same settings."""
    side = side or TRANSFORMER
    shared = {"type": "shared", "tokenizer": {"type": "subword", "vocab_size": 290}}
    return {
        "tokenizers": tokenizers or shared,
        "model": {"encoder": side, "decoder": side, "embeddings": embeddings},
    }
