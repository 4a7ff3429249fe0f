"""Folders of small random BERT, RoBERTa, DistilBERT and GPT-2 models, with small tokenizers."""

import json
import string

import torch

CORPUS = [
    "The girl walks in the garden, unbelievably quickly.",
    "Don't walk; the lion's asleep (it isn't?) at 12:30.",
    "A big lion sleeps in the wood. He'll wake at 1999!",
    "unhappy people aren't walking; they've been running",
]
TRICKY_TEXTS = [
    *("", " ", "\t\n  \r\n", "the the  the", "na\u00efve caf\u00e9 \u00c5ngstr\u00f6m e\u0301"),
    *("\u6211\u7231\u5317\u4eac in Beijing\u3002", "\uff21\uff22 \ufb01n \u00bd \u2167 x\u00b2"),
    *("a\0b\x01c\x7fd\u200be\ufffdf\u00adg\u2028h\x85i\xa0j\u3000k", "\ue000 private \U000f0000"),
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f600!! \U0001f1e9\U0001f1ea",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u05e9\u05dc\u05d5\u05dd \u200fabc \ud55c\uad6d\uc5b4",
    "\u039f\u0394\u03a5\u03a3\u03a3\u0395\u03a5\u03a3 \u0130stanbul STRASSE stra\u00dfe",
    *("x" * 101 + " y", "can't I'LL we've 'd '' 's", "$5.00 ~^`|<> a_b __ c-d ##ing [UNUSED]"),
    *("line one\n\nline  two \n three", "a\u2581b <unk2> 3.14e-10 e.g. U.S.A."),
]
"""Texts without special tokens and without characters that are newer than the library's tables."""
SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4}
SIZES |= {"intermediate_size": 24, "max_position_embeddings": 40}
DISTILBERT_SIZES = {"dim": 16, "n_layers": 3, "n_heads": 4, "hidden_dim": 24}
GPT2_SIZES = {"n_embd": 16, "n_layer": 3, "n_head": 4, "n_positions": 64}
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def write_wordpiece(folder, **normalizer):
    """Write tokenizer.json with letters, their continuations and some pieces; return its size."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    signs = [*string.ascii_letters, *string.digits, *string.punctuation, "\u6211", "\u03c3"]
    pieces = ["the", "walk", "lion", "in", "garden", "##s", "##ing", "un", "##happy", "na"]
    letters = [f"##{letter}" for letter in string.ascii_letters + string.digits]
    tokens = [*BERT_SPECIAL[:1], "unused", *BERT_SPECIAL[1:], *signs, *letters, *pieces]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(**normalizer)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    return len(vocabulary)


def write_byte_level_bpe(folder, special, *, add_prefix_space=False):
    """Write tokenizer.json with merges trained on the corpus; return its size."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {"initial_alphabet": alphabet, "special_tokens": special, "show_progress": False}
    trainer = trainers.BpeTrainer(vocab_size=330, **options)
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    if special is ROBERTA_SPECIAL:
        names = ("cls_token", "pad_token", "sep_token", "unk_token", "mask_token")
        (folder / "special_tokens_map.json").write_text(
            json.dumps(dict(zip(names, special, strict=True)))
        )
    return tokenizer.get_vocab_size()


def randomize(model, seed=0):
    """Draw all parameters, norms and biases included."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            is_norm = ("norm" in name.lower() or ".ln_" in name) and name.endswith("weight")
            is_table = "embeddings" in name or "wte" in name or "wpe" in name
            weight.normal_(std=0.1 if weight.dim() == 1 else 0.3 if is_table else 0.5)
            weight.add_(1.0 if is_norm else 0.0)
    return model.eval()


def write_encoder(folder, model_type, *, has_head=True, **settings):
    """Write a random model of the BERT family; return it."""
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    if model_type == "roberta":
        size = write_byte_level_bpe(folder, ROBERTA_SPECIAL)
        ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1}
        sizes = {**SIZES, **ids, "max_position_embeddings": 42}
        name = "Roberta"
    else:
        size = write_wordpiece(folder)
        is_bert = model_type == "bert"
        sizes = SIZES if is_bert else {**DISTILBERT_SIZES, "max_position_embeddings": 40}
        name = "Bert" if is_bert else "DistilBert"
    config = getattr(transformers, f"{name}Config")(vocab_size=size, **{**sizes, **settings})
    model_class = getattr(transformers, f"{name}ForMaskedLM" if has_head else f"{name}Model")
    model = randomize(model_class(config))
    model.save_pretrained(folder)
    return model


def write_gpt2(folder, **settings):
    """Write a random GPT-2; return it."""
    from transformers import GPT2Config, GPT2LMHeadModel

    folder.mkdir(parents=True, exist_ok=True)
    size = write_byte_level_bpe(folder, ["<|endoftext|>"])
    eos = {"bos_token_id": 0, "eos_token_id": 0}
    model = randomize(
        GPT2LMHeadModel(GPT2Config(vocab_size=size, **{**GPT2_SIZES, **eos, **settings}))
    )
    model.save_pretrained(folder)
    return model
