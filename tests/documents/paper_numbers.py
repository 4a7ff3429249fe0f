"""Numbers of the papers that recipes are named after, by the section that prints them.

A pattern matches settings of the resolved recipe; `*` stands for anything. What no section prints
is listed under `NOT_IN_PAPER` with its reason. Units differ in two places: papers count a batch in
pairs, and average a loss over sentences (`batch` and `PER_SENTENCE`).
"""

from typing import Any

import pytest

NOT_IN_PAPER = "not in the paper"
Sections = dict[str, dict[str, Any]]


def join(*parts: Sections) -> Sections:
    """Return the rows of all parts, section by section."""
    joined: Sections = {}
    for part in parts:
        for section, rows in part.items():
            joined[section] = joined.get(section, {}) | rows
    return joined


PER_SENTENCE = 25
"""Tokens of a sentence: a loss per sentence is this many times a loss per token."""


def batch(num_pairs: int) -> int:
    """Return the padded tokens of both sides, with 30 tokens per sentence."""
    return num_pairs * 2 * 30


TRANSFORMER: Sections = {
    "3.1": {
        "model.*coder.type": "transformer",
        "model.*coder.num_layers": 6,
        "model.*coder.norm_order": "post",
        "model.*coder.norm": "layer",
    },
    "3.2.1": {"model.*coder.attention.score.type": "scaled-dot"},
    "3.3": {
        "model.*coder.feed_forward.0.type": "plain",
        "model.*coder.feed_forward.0.activation": "relu",
        "model.*coder.feed_forward.0.gated": False,
    },
    "3.4": {
        "model.embeddings": "shared",
        "model.*coder.scale_embeddings": True,
        "model.decoder.output_head.type": "softmax",
        "model.decoder.output_head.bias": False,  # one matrix for embeddings and output
    },
    "3.5": {"model.*coder.positional_encoding.type": "sinusoidal"},
    "5.1": {
        "tokenizers.type": "shared",
        "tokenizers.tokenizer.type": "subword",
        "tokenizers.tokenizer.vocab_size": 37_000,
        "tokenizers.tokenizer.model_type": "bpe",
        "training.batching.max_tokens": 25_000 + 25_000,
    },
    "5.3": {
        "training.optimizer.type": "adamw",
        "training.optimizer.weight_decay": 0.0,  # so it is Adam
        "training.optimizer.beta1": 0.9,
        "training.optimizer.beta2": 0.98,
        "training.optimizer.eps": 1e-9,
        "training.lr_scheduler.type": "inverse-sqrt",
        "training.lr_scheduler.warmup_steps": 4000,
        "training.max_grad_norm": None,
        "training.max_grad_value": None,
    },
    "5.4": {
        "training.label_smoothing": 0.1,
        "model.*coder.attention.dropout": 0.0,  # residual dropout alone
        "model.*coder.feed_forward.0.dropout": 0.0,
    },
    "6.1": {
        "decoding.beam_size": 4,
        "decoding.length_penalty.type": "gnmt",
        "decoding.length_penalty.alpha": 0.6,
        "decoding.max_length_ratio": 1.0,
        "decoding.max_length_offset": 50,
    },
    NOT_IN_PAPER: {"model.init.type": "Xavier is that of the authors' code"},
}
BASE: Sections = {
    "3.1": {"model.*coder.hidden_size": 512},
    "3.2.2": {"model.*coder.attention.multi_head.num_heads": 8},
    "3.3": {"model.*coder.feed_forward.0.intermediate_size": 2048},
    "5.2": {"training.max_steps": 100_000},
    "5.3": {"training.optimizer.learning_rate": pytest.approx(512**-0.5 * 4000**-0.5, rel=1e-3)},
    "5.4": {"model.*coder.dropout": 0.1},
}
BIG: Sections = {
    "table 3": {
        "model.*coder.hidden_size": 1024,
        "model.*coder.attention.multi_head.num_heads": 16,
        "model.*coder.feed_forward.0.intermediate_size": 4096,
        "model.*coder.dropout": 0.3,
        "training.max_steps": 300_000,
    },
    "5.3": {"training.optimizer.learning_rate": pytest.approx(1024**-0.5 * 4000**-0.5, rel=1e-3)},
}

# Liu et al. 2018: the decoder of the Transformer (section 4.2.3), so its numbers.
TRANSFORMER_DECODER: Sections = {
    "4.2.3": {
        "model.type": "prefix-lm",
        "model.loss_on": "both",
        "model.embedding_size": 512,
        "model.embeddings": "tied",
        "model.lm_head_bias": False,
        "model.positional_encoding.type": "sinusoidal",
        "model.dropout": 0.1,
        "model.output_dropout": 0.0,
        "model.backbone.type": "transformer",
        "model.backbone.hidden_size": 512,
        "model.backbone.norm_order": "post",
        "model.backbone.attention.score.type": "scaled-dot",
        "model.backbone.attention.multi_head.num_heads": 8,
        "model.backbone.attention.dropout": 0.0,
        "model.backbone.feed_forward.*.intermediate_size": 2048,
        "model.backbone.feed_forward.0.type": "plain",
        "model.backbone.feed_forward.*.activation": "relu",
        "model.backbone.dropout": 0.1,
        "training.label_smoothing": 0.1,
        "training.optimizer.type": "adamw",
        "training.optimizer.learning_rate": pytest.approx(512**-0.5 * 4000**-0.5, rel=1e-3),
        "training.optimizer.beta2": 0.98,
        "training.optimizer.eps": 1e-9,
        "training.lr_scheduler.type": "inverse-sqrt",
        "training.lr_scheduler.warmup_steps": 4000,
        "training.max_grad_norm": None,
    },
    "4.2.1": {
        "tokenizers.type": "shared",
        "tokenizers.tokenizer.type": "subword",
        "tokenizers.tokenizer.vocab_size": 32_000,
    },
    "5": {
        "decoding.beam_size": 4,
        "decoding.length_penalty.type": "gnmt",
        "decoding.length_penalty.alpha": 0.6,
    },
    NOT_IN_PAPER: {
        "tokenizers.tokenizer.model_type": "the authors' subwords are another kind",
        "model.init.type": "Xavier is that of the authors' code",
        "training.max_steps": "ours",
        "training.batching.max_tokens": "that of Vaswani et al. 2017",
    },
}


def with_length(max_length: int) -> Sections:
    """Return the rows of the number of source tokens, L in tables 4 and 5."""
    settings = {"data.filtering.max_length", "decoding.max_source_length"}
    return {"table 4": dict.fromkeys(settings, max_length)}


COMPRESSED: Sections = {
    "4.2.4": {
        "model.backbone.num_layers": 5,  # LMLML
        "model.backbone.attention_types.0.type": "block",
        "model.backbone.attention_types.0.block_size": 256,
        "model.backbone.attention_types.1.type": "compressed",
        "model.backbone.attention_types.1.stride": 3,
    },
}
EXPERTS_128: Sections = {
    "4.2.4": {
        "model.backbone.feed_forward.2.type": "moe",
        "model.backbone.feed_forward.2.num_experts": 128,
    },
    NOT_IN_PAPER: {
        "model.backbone.feed_forward.[134].type": "which layer has the experts is not said",
        "model.backbone.feed_forward.2.num_experts_per_token": "not said",
        "model.backbone.feed_forward.2.capacity_factor": "not said",
    },
}

BERT: Sections = {
    "3": {
        "model.type": "masked-language-model",
        "model.encoder.type": "transformer",
        "model.encoder.num_layers": 12,
        "model.encoder.hidden_size": 768,
        "model.encoder.attention.multi_head.num_heads": 12,
        "model.encoder.feed_forward.0.type": "plain",
        "model.encoder.feed_forward.0.intermediate_size": 4 * 768,
        "model.encoder.norm_order": "post",
        "model.encoder.positional_encoding.type": "learned",
        "model.encoder.positional_encoding.max_positions": 512,
        "model.encoder.num_segments": 2,
        "tokenizers.type": "shared",
        "tokenizers.tokenizer.type": "subword",
    },
    "3.1": {
        "model.next_sentence_prediction": True,
        "model.masking.mlm_probability": 0.15,
        "model.masking.mask_replace_prob": 0.8,
        "model.masking.random_replace_prob": 0.1,
    },
    "A.2": {
        "data.lm_batching.batch_size": 256,
        "data.lm_batching.context_length": 512 - 1,  # and [CLS]
        "model.encoder.dropout": 0.1,
        "model.encoder.attention.dropout": 0.1,
        "model.encoder.feed_forward.0.activation": "gelu",  # erf in the first release
        "training.max_steps": 1_000_000,
        "training.optimizer.type": "adamw",
        "training.optimizer.learning_rate": 1e-4,
        "training.optimizer.beta1": 0.9,
        "training.optimizer.beta2": 0.999,
        "training.optimizer.weight_decay": 0.01,
        "training.lr_scheduler.type": "linear",
        "training.lr_scheduler.warmup_steps": 10_000,
        "training.label_smoothing": 0.0,
    },
    "authors' code": {
        "tokenizers.tokenizer.vocab_size": 30_522,
        "model.encoder.norm_eps": 1e-12,
        "model.encoder.embedding_norm": True,
        "model.encoder.scale_embeddings": False,
        "model.encoder.attention.score.type": "scaled-dot",
        "model.encoder.attention.multi_head.bias": True,
        "model.tie_embeddings": True,
        "model.init.type": "normal",
        "model.init.std": 0.02,
        "training.optimizer.eps": 1e-6,
        "training.max_grad_norm": 1.0,
    },
}

GPT: Sections = {
    "4.1": {
        "model.type": "language-model",
        "model.backbone.type": "transformer",
        "model.backbone.num_layers": 12,
        "model.backbone.hidden_size": 768,
        "model.embedding_size": 768,
        "model.backbone.attention.multi_head.num_heads": 12,
        "model.backbone.feed_forward.0.type": "plain",
        "model.backbone.feed_forward.0.intermediate_size": 3072,
        "model.positional_encoding.type": "learned",
        "model.positional_encoding.max_positions": 512,
        "model.dropout": 0.1,
        "model.backbone.dropout": 0.1,
        "model.backbone.attention.dropout": 0.1,
        "model.init.type": "normal",
        "model.init.std": 0.02,
        "tokenizers.type": "shared",
        "tokenizers.tokenizer.type": "subword",
        "tokenizers.tokenizer.model_type": "bpe",
        "data.lm_batching.batch_size": 64,
        "data.lm_batching.context_length": 512,
        "training.optimizer.type": "adamw",
        "training.optimizer.learning_rate": 2.5e-4,
        "training.optimizer.weight_decay": 0.01,
        "training.lr_scheduler.type": "cosine",
        "training.lr_scheduler.warmup_steps": 2000,
        "training.label_smoothing": 0.0,
    },
    "authors' code": {
        "tokenizers.tokenizer.vocab_size": 40_478,
        "model.backbone.norm_order": "post",
        "model.backbone.norm_eps": 1e-5,
        "model.backbone.attention.score.type": "scaled-dot",
        "model.backbone.attention.multi_head.bias": True,
        "model.backbone.feed_forward.0.activation": "gelu-tanh",
        "model.tie_embeddings": True,
        "model.lm_head_bias": False,
        "model.output_dropout": 0.0,
        "training.optimizer.beta1": 0.9,
        "training.optimizer.beta2": 0.999,
        "training.optimizer.eps": 1e-8,
        "training.max_grad_norm": 1.0,
    },
    NOT_IN_PAPER: {"training.max_steps": "100 epochs of a corpus whose size is not printed"},
}

SEQ2SEQ: Sections = {
    "3.1 and 3.2": {"tokenizers.type": "separate", "tokenizers.*.type": "word"},
    "3.3": {"model.encoder.direction.reverse_source": True},
    "3.4": {
        "model.*coder.type": "recurrent",
        "model.*coder.cell.type": "lstm",
        "model.encoder.direction.type": "forward",
        "model.*coder.num_layers": 4,
        "model.*coder.hidden_size": 1000,
        "model.*coder.embedding_size": 1000,
        "model.*coder.dropout": 0.0,
        "model.decoder.bridge.type": "copy",
        "model.decoder.wiring.type": "final-state",
        "model.decoder.pre_output.type": "state-only",
        "tokenizers.source.max_vocab_size": 160_000,
        "tokenizers.target.max_vocab_size": 80_000,
        "model.init.type": "uniform",
        "model.init.bound": 0.08,
        "training.max_steps": 7.5 * 12_000_000 / 128,
        "training.batching.max_tokens": batch(128),
        "training.optimizer.type": "sgd",
        "training.optimizer.momentum": 0.0,
        "training.optimizer.learning_rate": 0.7 * PER_SENTENCE,
        "training.lr_scheduler.type": "step-decay",
        "training.lr_scheduler.start_decay_step": 5 * 12_000_000 / 128,
        "training.lr_scheduler.decay_steps": 0.5 * 12_000_000 / 128,
        "training.max_grad_norm": 5 / PER_SENTENCE,
        "training.label_smoothing": 0.0,
    },
    "table 1": {"decoding.beam_size": 12, "decoding.length_penalty.alpha": 0.0},
    NOT_IN_PAPER: {"decoding.length_penalty.type": "there is none: alpha is 0"},
}

# Bahdanau et al. 2015, also the source of the sizes of rnn-encdec-2014.
BAHDANAU_TRAINING: Sections = {
    "4.1": {"tokenizers.*.max_vocab_size": 30_000, "data.filtering.max_length": 50},
    "4.2": {
        "tokenizers.type": "separate",
        "tokenizers.*.type": "word",
        "model.*coder.type": "recurrent",
        "model.*coder.cell.type": "gru",
        "model.*coder.num_layers": 1,
        "model.*coder.dropout": 0.0,
        "training.label_smoothing": 0.0,
    },
    "A.2.3": {
        "model.*coder.embedding_size": 620,
        "model.decoder.hidden_size": 1000,
        "model.decoder.pre_output.size": 500,
    },
    "B.1": {"model.init.type": "bahdanau-2015"},
    "B.2": {
        "training.batching.max_tokens": batch(80),
        "training.batching.bucket_size": 20 * 80,
        "training.optimizer.type": "adadelta",
        "training.optimizer.learning_rate": 1.0,
        "training.optimizer.rho": 0.95,
        "training.optimizer.eps": 1e-6,
        "training.lr_scheduler.type": "constant",
        "training.max_grad_norm": 1.0,
    },
    NOT_IN_PAPER: {
        "decoding.beam_size": "that of the authors' examples",
        "decoding.length_penalty.*": "there is none: alpha is 0",
    },
}
BAHDANAU: Sections = {
    "table 2": {"training.max_steps": 288_000},
    "A.1.1": {"model.*coder.cell.reset": "before"},
    "A.1.2": {
        "model.decoder.wiring.type": "attend-then-step",
        "model.decoder.attention.score.type": "additive",
    },
    "A.2.1": {"model.encoder.direction.type": "bidirectional"},
    "A.2.2": {"model.decoder.bridge.type": "backward", "model.decoder.pre_output.type": "maxout"},
    "A.2.3": {
        "model.encoder.hidden_size": 2 * 1000,
        "model.decoder.attention.score.hidden_size": 1000,
    },
}
RNN_ENCDEC: Sections = {  # Cho et al. 2014
    "table 2": {"training.max_steps": 600_000},  # of Bahdanau et al. 2015, for RNNenc-50
    "A.1.1": {
        "model.encoder.cell.reset": "before",
        "model.encoder.direction.type": "forward",
        "model.encoder.hidden_size": 1000,
        "model.encoder.summary_layer": True,
    },
    "A.1.2": {
        "model.decoder.cell.reset": "after-with-context",
        "model.decoder.bridge.type": "tanh",
        "model.decoder.wiring.type": "constant-context",
        "model.decoder.pre_output.type": "maxout",
    },
}

LUONG: Sections = {
    "2": {"model.decoder.bridge.type": "copy"},
    "3.3": {
        "model.decoder.wiring.type": "step-then-attend",
        "model.decoder.wiring.input_feeding": True,
        "model.decoder.pre_output.type": "tanh",  # equation 5
    },
    "4.1": {
        "data.filtering.max_length": 50,
        "tokenizers.type": "separate",
        "tokenizers.*.type": "word",
        "tokenizers.*.max_vocab_size": 50_000,
        "model.*coder.type": "recurrent",
        "model.*coder.cell.type": "lstm",
        "model.*coder.num_layers": 4,
        "model.*coder.hidden_size": 1000,
        "model.*coder.embedding_size": 1000,
        "model.encoder.direction.type": "forward",
        "model.encoder.direction.reverse_source": True,
        "model.*coder.dropout": 0.2,
        "model.init.type": "uniform",
        "model.init.bound": 0.1,
        "training.max_steps": 12 * (4_500_000 // 128),
        "training.batching.max_tokens": batch(128),
        "training.optimizer.type": "sgd",
        "training.optimizer.momentum": 0.0,
        "training.optimizer.learning_rate": 1.0 * PER_SENTENCE,
        "training.lr_scheduler.type": "step-decay",
        "training.lr_scheduler.start_decay_step": 8 * (4_500_000 // 128),
        "training.lr_scheduler.decay_steps": 4_500_000 // 128,
        "training.max_grad_norm": 5 / PER_SENTENCE,
        "training.label_smoothing": 0.0,
    },
    NOT_IN_PAPER: {
        "decoding.beam_size": "ours",
        "decoding.length_penalty.*": "ours",
    },
}


def luong(score: str, settings: dict[str, Any] | None = None) -> Sections:
    """Return the rows of one score, with other settings of attention."""
    rows = {f"model.decoder.attention.{name}": value for name, value in (settings or {}).items()}
    return join(LUONG, {"3.1 and 3.2": {"model.decoder.attention.score.type": score} | rows})


LOCAL = {"alignment.type": "local", "alignment.half_width": 10}

GNMT: Sections = {
    "3": {
        "model.*coder.type": "recurrent",
        "model.*coder.cell.type": "lstm",
        "model.*coder.num_layers": 8,
        "model.*coder.hidden_size": 1024,
        "model.*coder.embedding_size": 1024,
        "model.decoder.wiring.type": "bottom-layer-attention",
        "model.decoder.attention.score.type": "additive",
        "model.decoder.attention.score.hidden_size": 1024,
        "model.decoder.pre_output.type": "state-only",
    },
    "3.1": {
        "model.encoder.connection.type": "residual",
        "model.encoder.connection.first_residual_layer": 3,  # figure 1
        "model.decoder.first_residual_layer": 3,
    },
    "3.2": {"model.encoder.direction.type": "bidirectional-then-forward"},
    "4.1": {
        "tokenizers.type": "shared",
        "tokenizers.tokenizer.type": "subword",
        "tokenizers.tokenizer.vocab_size": 32_000,
    },
    "7": {
        "decoding.beam_size": 12,
        "decoding.length_penalty.type": "gnmt",
        "decoding.length_penalty.alpha": 0.2,
        "decoding.coverage_penalty.type": "gnmt",
        "decoding.coverage_penalty.beta": 0.2,
        "decoding.pruning.*_threshold": 3.0,
    },
    "8.3": {
        "model.*coder.dropout": 0.2,
        "model.init.type": "uniform",
        "model.init.bound": 0.04,
        "training.max_steps": 1_200_000 + 800_000,
        "training.batching.max_tokens": batch(128),
        "training.optimizer.type": "adamw",
        "training.optimizer.learning_rate": 2e-4,
        "training.lr_scheduler.type": "step-decay",
        "training.lr_scheduler.start_decay_step": 1_200_000,
        "training.lr_scheduler.decay_steps": 200_000,
        "training.max_grad_norm": 5 / PER_SENTENCE,
        "training.label_smoothing": 0.0,
    },
    NOT_IN_PAPER: {
        "tokenizers.tokenizer.model_type": "BPE in place of wordpieces",
        "model.decoder.bridge.type": "the paper's decoder sees the source by attention alone",
        "training.optimizer.beta2": "the default of Adam",
        "training.optimizer.eps": "the default of Adam",
    },
}

CONVS2S: Sections = {
    "3.3": {"model.decoder.attention.score.type": "dot", "model.*coder.type": "convolutional"},
    "4.1": {
        "tokenizers.type": "shared",
        "tokenizers.tokenizer.type": "subword",
        "tokenizers.tokenizer.vocab_size": 40_000,
        "tokenizers.tokenizer.model_type": "bpe",
    },
    "4.2": {
        "model.*coder.embedding_size": 512,
        "model.decoder.output_size": 512,
        "training.batching.max_tokens": batch(48),
        "training.optimizer.type": "sgd",
        "training.optimizer.learning_rate": 0.25,
        "training.optimizer.momentum": 0.99,
        "training.optimizer.nesterov": True,
        "training.max_grad_norm": 0.1,
        "training.label_smoothing": 0.0,
    },
    "4.3": {
        "decoding.beam_size": 5,
        "decoding.length_penalty.type": "power",
    },
    "5.1": {
        "model.*coder.layers.0.num_layers": 10,
        "model.*coder.layers.0.hidden_size": 512,
        "model.*coder.layers.1.num_layers": 3,
        "model.*coder.layers.1.hidden_size": 768,
        "model.*coder.layers.2.num_layers": 2,
        "model.*coder.layers.2.hidden_size": 2048,
        "model.*coder.layers.[01].kernel_size": 3,
        "model.*coder.layers.2.kernel_size": 1,
    },
    NOT_IN_PAPER: {
        "model.*coder.dropout": "of the authors' code",
        "training.max_steps": "of step decay",
        "training.lr_scheduler.*": "step decay in place of division by ten on a plateau",
        "decoding.length_penalty.alpha": "tuned, not printed",
    },
}

BYTENET: Sections = {
    "3.2": {"model.encoder.length_factor": 1.2, "model.encoder.length_offset": 0},
    "6": {
        "model.*coder.type": "dilated",
        "tokenizers.type": "separate",
        "tokenizers.*.type": "character",
        "tokenizers.source.max_vocab_size": 296 + 4,  # with the special tokens
        "tokenizers.target.max_vocab_size": 323 + 4,
        "model.*coder.hidden_size": 800,
        "model.*coder.num_repeats": 6,  # 30 blocks
        "model.*coder.dilations": (1, 2, 4, 8, 16),
        "model.*coder.kernel_size": 3,
        "training.optimizer.type": "adamw",
        "training.optimizer.learning_rate": 3e-4,
        "training.label_smoothing": 0.0,
        "decoding.beam_size": 12,
    },
    NOT_IN_PAPER: {
        "data.filtering.max_length": "no number",
        "training.max_steps": "no number",
        "training.batching.max_tokens": "no number",
        "training.optimizer.beta2": "the default of Adam",
        "training.optimizer.eps": "the default of Adam",
        "training.lr_scheduler.type": "no schedule is described",
        "decoding.length_penalty.*": "ours",
    },
}

LSTMN: Sections = {
    "3.1": {"model.*coder.cell.type": "lstmn", "model.*coder.type": "recurrent"},
    "5.3": {
        "model.*coder.hidden_size": 450,
        "model.*coder.cell.score_size": 450,
        "model.*coder.embedding_size": 300,
        "model.decoder.attention.score.type": "additive",
        "model.decoder.attention.score.hidden_size": 450,
        "training.optimizer.type": "adamw",
        "training.optimizer.beta2": 0.999,
        "training.optimizer.eps": 1e-8,
        "training.optimizer.learning_rate": 1e-3,
    },
    NOT_IN_PAPER: dict.fromkeys(
        (
            "tokenizers.*",
            "model.encoder.direction.type",
            "model.*coder.dropout",
            "training.max_steps",
            "training.batching.max_tokens",
            "training.lr_scheduler.*",
            "training.max_grad_norm",
            "decoding.beam_size",
        ),
        "the paper has no translation",
    ),
}

DEEP_ATT: Sections = {
    "3.1": {
        "model.*coder.type": "recurrent",
        "model.*coder.cell.type": "lstm",
        "model.encoder.direction.type": "alternating",
        "model.encoder.num_columns": 2,
        "model.encoder.connection.type": "fast-forward",
        "model.encoder.connection.halve_shortcut": True,
    },
    "4.2": {
        "tokenizers.type": "separate",
        "tokenizers.*.type": "word",
        "tokenizers.source.max_vocab_size": 160_000,
        "tokenizers.target.max_vocab_size": 80_000,
        "model.encoder.num_layers": 9,
        "model.decoder.num_layers": 7,
        "model.*coder.embedding_size": 256,
        "model.encoder.hidden_size": 2 * 512,  # of both columns
        "model.decoder.hidden_size": 512,
        "model.encoder.connection.shortcut_size": 4 * 512,
    },
    "4.3": {
        "model.*coder.dropout": 0.1,
        "training.optimizer.learning_rate": 4e-4,
        "training.label_smoothing": 0.0,
        "decoding.beam_size": 3,
        "decoding.length_penalty.alpha": 0.0,
    },
    NOT_IN_PAPER: {
        "model.decoder.first_residual_layer": "residual in place of fast-forward connections",
        "model.decoder.wiring.type": "every layer sees the context",
        "model.decoder.attention.score.*": "the size is ours",
        "training.max_steps": "no number",
        "training.batching.max_tokens": "no number",
        "training.optimizer.type": "two learning rates in the paper",
        "training.lr_scheduler.*": "ours",
        "training.max_grad_norm": "ours",
        "decoding.length_penalty.type": "there is none: alpha is 0",
    },
}

MOE: Sections = {
    "appendix E": {
        "model.*coder.type": "recurrent",
        "model.*coder.cell.type": "lstm",
        "model.encoder.num_layers": 3,
        "model.decoder.num_layers": 2,
        "model.encoder.direction.type": "bidirectional-then-forward",
        "model.encoder.connection.type": "residual",
        "model.*coder.embedding_size": 512,
        "model.*coder.cell.cell_state_size": 2048,
        "model.*coder.hidden_size": 512,  # after the projection
        "model.*coder.experts.num_experts": 2048,
        "model.*coder.experts.num_experts_per_token": 4,
        "model.*coder.experts.num_groups_per_token": 2,
        "model.*coder.experts.intermediate_size": 2048,
        "model.encoder.experts.after_layers": (2,),
        "model.decoder.experts.after_layers": (1,),
        "model.*coder.experts.*_weight": 0.01,
        "model.decoder.wiring.type": "bottom-layer-attention",
        "model.*coder.dropout": 0.4,
        "tokenizers.type": "shared",
        "tokenizers.tokenizer.vocab_size": 32_000,
        "training.batching.max_tokens": 16_384,  # "roughly 16000 words per GPU"
        "training.label_smoothing": 0.0,
    },
    "appendix F": {"model.*coder.experts.gating": "strictly-balanced"},
    "appendix G": {"model.decoder.attention.score.type": "tanh-dot"},
    "appendix E: the search of Wu et al. 2016": GNMT["7"],
    NOT_IN_PAPER: {
        "tokenizers.*": "BPE in place of wordpieces",
        "model.*.first_residual_layer": "residual connections around all layers",
        "model.*coder.experts.num_groups": "no number; one per GPU, as in section 3.1",
        "model.decoder.bridge.type": "as gnmt-2016",
        "model.decoder.attention.score.hidden_size": "no number",
        "model.decoder.pre_output.type": "as gnmt-2016",
        "training.*": "the schedule is ours",
    },
}

DEEPAR: Sections = {
    "3.1": {"model.head.type": "gaussian"},
    "3.3": {"model.scaling": "mean", "data.series_batching.sampling": "scale"},
    "3.4": {
        "model.covariates.calendar": ("hour-of-day", "day-of-week"),
        "model.covariates.age": True,
    },
    "table 3, electricity": {
        "model.context_length": 168,
        "model.prediction_length": 24,
        "model.series_embedding.embedding_size": 20,
        "model.backbone.type": "recurrent",
        "model.backbone.cell.type": "lstm",
        "model.backbone.num_layers": 3,
        "model.backbone.hidden_size": 40,
        "data.series_batching.batch_size": 64,
        "training.optimizer.learning_rate": 1e-3,
    },
    NOT_IN_PAPER: {
        "data.series_batching.batches_per_epoch": "an epoch only sets how often data are logged",
        "model.season_length": "of the seasonal naive forecast, which the paper does not report",
        "tokenizers.type": "numbers have no tokens",
        "training.max_steps": "the paper prints hours",
        "training.lr_scheduler.type": "early stopping alone",
        "training.optimizer.type": "the default, which the dump of nested settings contains",
    },
}

RAM_SIZES: Sections = {  # Mnih et al. 2014
    "3.1: glimpse and location, Gaussian of fixed width": {
        "model.type": "recurrent-attention",
        "model.location.type": "gaussian",
    },
    "4: networks": {
        "model.part_size": 128,
        "model.glimpse_hidden_size": 256,
        "model.hidden_size": 256,
        "model.core": "rnn",
    },
    NOT_IN_PAPER: {
        "tokenizers.type": "images have no tokens",
        "data.labeled_images.batch_size": "20 in the paper; more fills a GPU",
        "model.num_classes": "digits",
        "model.location.std": "found by random search, not printed",
        "model.reinforce_weight": "keeps the gradient clipping for the cross-entropy",
        "model.num_test_episodes": "not printed",
        "training.*": "Adam with a cosine in place of SGD with momentum and a linear decay",
    },
}


def ram(section: str, settings: dict[str, object]) -> Sections:
    return join(RAM_SIZES, {section: settings})


RAM_SCALES = {
    "model.image_size": 60,
    "model.num_glimpses": 8,
    "model.glimpse_size": 12,
    "model.num_scales": 3,
}

POINTER_GENERATOR: Sections = {
    "2.1": {
        "model.*coder.type": "recurrent",
        "model.*coder.cell.type": "lstm",
        "model.encoder.direction.type": "bidirectional",
        "model.decoder.wiring.type": "step-then-attend",
        "model.decoder.attention.score.type": "additive",
        "model.decoder.attention.score.bias": True,
    },
    "2.2": {
        "model.decoder.output_head.type": "pointer-generator",
        "model.decoder.output_head.gate_reads_cell_state": True,  # s_t is the pair of both
        "tokenizers.type": "shared",
        "tokenizers.tokenizer.type": "word",
        "tokenizers.tokenizer.open_vocabulary": True,
    },
    "2.3": {
        "model.decoder.attention.score.features.0.type": "coverage",
        "model.decoder.attention.auxiliary_losses.0.type": "coverage",
        "model.decoder.attention.auxiliary_losses.0.weight": 1.0,
    },
    "5": {
        "model.encoder.hidden_size": 2 * 256,
        "model.decoder.hidden_size": 256,
        "model.*coder.embedding_size": 128,
        "tokenizers.tokenizer.max_vocab_size": 50_000,
        "training.optimizer.type": "adagrad",
        "training.optimizer.learning_rate": 0.15,
        "training.optimizer.initial_accumulator_value": 0.1,
        "training.max_grad_norm": 2.0,
        "training.batching.max_tokens": 16 * (400 + 100),
        "training.max_steps": 230_000,
        "data.filtering.max_length": 400,
        "decoding.beam_size": 4,
    },
    "authors' code": {
        "model.decoder.attention.score.hidden_size": 512,
        "model.embeddings": "shared-inputs",
        "model.init.type": "uniform",
        "model.init.bound": 0.02,
        "training.lr_scheduler.type": "constant",
        "decoding.length_penalty.type": "mean",
    },
}

COPYNET: Sections = {
    "3.1": {"model.encoder.type": "recurrent", "model.encoder.direction.type": "bidirectional"},
    "3.2": {
        "model.decoder.type": "recurrent",
        "model.decoder.wiring.type": "attend-then-step",
        "model.decoder.pre_output.type": "state-only",
        "model.decoder.output_head.type": "copynet",
        "model.decoder.output_head.selective_read": True,
        "tokenizers.tokenizer.open_vocabulary": True,
    },
    "5.2": {
        "tokenizers.tokenizer.type": "word",
        "tokenizers.tokenizer.max_vocab_size": 10_000,
        "model.*coder.embedding_size": 350,
        "model.encoder.hidden_size": 2 * 500,
        "model.decoder.hidden_size": 500,
        "decoding.beam_size": 10,
    },
    NOT_IN_PAPER: dict.fromkeys(
        (
            "tokenizers.type",
            "model.*coder.cell.type",
            "model.decoder.attention.score.*",
            "training.max_steps",
            "training.batching.max_tokens",
            "training.optimizer.*",
        ),
        "the paper does not print it",
    ),
}

POINTER_NETWORK: Sections = {
    "2.2": {
        "model.decoder.attention.score.type": "additive",
        "model.decoder.wiring.type": "step-then-attend",
    },
    "2.3": {
        "model.decoder.output_head.type": "pointer",
        "model.decoder.wiring.input_feeding": False,
        "tokenizers.target.type": "position",
    },
    "4.1": {
        "model.*coder.type": "recurrent",
        "model.*coder.cell.type": "lstm",
        "model.*coder.hidden_size": 256,
        "model.init.type": "uniform",
        "model.init.bound": 0.08,
        "training.optimizer.type": "sgd",
        "training.optimizer.learning_rate": 1.0,
        "training.max_grad_norm": 2.0,
    },
    NOT_IN_PAPER: dict.fromkeys(
        (
            "tokenizers.type",
            "tokenizers.source.type",
            "model.*coder.embedding_size",
            "model.encoder.direction.type",
            "model.decoder.bridge.type",
            "model.decoder.attention.score.hidden_size",
            "training.max_steps",
            "training.batching.max_tokens",
            "decoding.beam_size",
        ),
        "the paper reads coordinates, not tokens, or does not print it",
    ),
}
PAPER_NUMBERS: dict[str, Sections] = {
    "transformer-2017-base": join(TRANSFORMER, BASE),
    "transformer-2017-big": join(TRANSFORMER, BIG),
    "transformer-decoder-2018": join(
        TRANSFORMER_DECODER, with_length(4000), {"4.2.3": {"model.backbone.num_layers": 6}}
    ),
    "dmca-2018": join(TRANSFORMER_DECODER, with_length(11_000), COMPRESSED),
    "dmca-moe-2018": join(TRANSFORMER_DECODER, with_length(11_000), COMPRESSED, EXPERTS_128),
    "bert-2018": BERT,
    "gpt-2018": GPT,
    "seq2seq-2014": SEQ2SEQ,
    "rnn-encdec-2014": join(BAHDANAU_TRAINING, RNN_ENCDEC),
    "bahdanau-2015": join(BAHDANAU_TRAINING, BAHDANAU),
    "luong-2015-dot": luong("dot"),
    "luong-2015-general": luong("bilinear"),
    "luong-2015-concat": luong("concat", {"score.hidden_size": 1000}),
    "luong-2015-location": luong("location", {"score.max_positions": 50}),
    "luong-2015-local-m": luong(
        "bilinear",
        LOCAL | {"alignment.center.type": "monotonic", "alignment.gaussian": "none"},
    ),
    "luong-2015-local-p": luong(
        "bilinear",
        LOCAL
        | {"alignment.center.type": "predictive", "alignment.center.hidden_size": 1000}
        | {"alignment.gaussian": "after"},
    ),
    "gnmt-2016": GNMT,
    "deepatt-2016": DEEP_ATT,
    "moe-2017": MOE,
    "convs2s-2017": CONVS2S,
    "bytenet-2016": BYTENET,
    "lstmn-2016-shallow": join(LSTMN, {"4": {"model.decoder.wiring.type": "attend-then-step"}}),
    "deepar-2020": DEEPAR,
    "ram-2014": ram(
        "table 1 (a)",
        {
            "model.image_size": 28,
            "model.num_glimpses": 6,
            "model.glimpse_size": 8,
            "model.num_scales": 1,
        },
    ),
    "ram-2014-translated": ram("table 1 (b)", RAM_SCALES),
    "ram-2014-cluttered": ram(
        "table 2 (a)",
        RAM_SCALES
        | {"data.labeled_images.num_distractors": 4, "data.labeled_images.distractor_size": 8},
    ),
    "ram-2014-stopping": join(
        ram(
            "table 1 (a)", {"model.image_size": 28, "model.glimpse_size": 8, "model.num_scales": 1}
        ),
        {
            NOT_IN_PAPER: {
                "model.num_glimpses": "the most it may take",
                "model.stopping.*": "section 3 names the action and its cost without numbers",
            }
        },
    ),
    "pointer-generator-2017": POINTER_GENERATOR,
    "copynet-2016": COPYNET,
    "pointer-network-2015": POINTER_NETWORK,
    "lstmn-2016-deep": join(LSTMN, {"4": {"model.decoder.wiring.type": "deep-fusion"}}),
}
