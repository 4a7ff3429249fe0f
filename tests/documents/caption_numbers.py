"""Numbers of the papers behind recipes of captioning, by the section that prints them.

As `paper_numbers`; a batch is counted in captions of 12 tokens, to which an image adds two.
"""

from tests.documents.paper_numbers import NOT_IN_PAPER, Sections, join

TOKENS_PER_CAPTION = 14
OURS: Sections = {
    NOT_IN_PAPER: {
        "tokenizers.type": "an image has no tokens",
        "tokenizers.tokenizer.normalization.*": "as captions are compared in the papers",
        "model.encoder.type": "stored features in place of the network",
        "model.encoder.standardize": "ours",
        "training.max_steps": "ours",
        "training.metric_for_best_model": "ours",
        "training.lr_scheduler.type": "no schedule is printed",
        "decoding.length_penalty.*": "none is printed",
        "decoding.max_length": "ours",
    }
}
SHOW_AND_TELL: Sections = {
    "3.1": {
        "model.decoder.type": "recurrent",
        "model.decoder.cell.type": "lstm",
        "model.decoder.bridge.type": "first-input",
        "model.decoder.wiring.type": "final-state",
        "model.decoder.pre_output.type": "state-only",
        "decoding.beam_size": 20,
    },
    "4.3.1": {
        "model.decoder.*ing_size": 512,
        "model.decoder.hidden_size": 512,
        "tokenizers.tokenizer.type": "word",
        "tokenizers.tokenizer.min_frequency": 5,
        "training.optimizer.type": "sgd",
    },
    "GoogLeNet, which section 3 names": {
        "model.encoder.num_channels": 1024,
        "model.encoder.grid": (1, 1),
    },
    "authors' code": {
        "model.decoder.cell.forget_bias": 1.0,
        "model.decoder.dropout": 0.3,
        "model.init.type": "uniform",
        "model.init.bound": 0.08,
        "training.batching.max_tokens": 32 * TOKENS_PER_CAPTION,
        "training.optimizer.learning_rate": 2.0,
        "training.max_grad_norm": 5.0,
    },
}
SHOW_ATTEND_TELL: Sections = {
    "3.1.1": {"model.encoder.num_channels": 512, "model.encoder.grid": (14, 14)},
    "3.1.2": {
        "model.decoder.type": "recurrent",
        "model.decoder.cell.type": "lstm",
        "model.decoder.bridge.type": "mlp",
        "model.decoder.wiring.type": "attend-then-step",
        "model.decoder.pre_output.type": "deep-output",
    },
    "4.2.1": {"model.decoder.attention.readout.type": "gated"},
    "4.3": {"training.optimizer.type": "adam", "training.batching.max_tokens": 64 * 14},
    "5.2": {
        "tokenizers.tokenizer.type": "word",
        "tokenizers.tokenizer.max_vocab_size": 10_000,
    },
    "authors' code": {
        "model.decoder.embedding_size": 512,
        "model.decoder.hidden_size": 1000,
        "model.decoder.dropout": 0.5,
        "model.decoder.attention.score.type": "additive",
        "model.decoder.attention.score.hidden_size": 512,
    },
    NOT_IN_PAPER: {
        "training.optimizer.learning_rate": "ours",
        "decoding.beam_size": "ours",
    },
}
SOFT: Sections = {
    "4.2.1, lambda of the authors' code": {
        "model.decoder.attention.auxiliary_losses.0.type": "doubly-stochastic",
        "model.decoder.attention.auxiliary_losses.0.weight": 1.0,
    }
}
HARD: Sections = {
    "4.1": {
        "model.decoder.attention.alignment.type": "sampled",
        "model.decoder.attention.alignment.baseline.momentum": 0.9,
        "model.decoder.attention.alignment.soft_probability": 0.5,
        "model.decoder.attention.auxiliary_losses": (),
    },
    "authors' code": {
        "model.decoder.attention.alignment.reward_scale": 0.1,
        "model.decoder.attention.alignment.entropy_bonus": 0.002,
        "model.decoder.attention.alignment.baseline.type": "moving-average",
        "model.decoder.attention.alignment.inference": "expected",
    },
}
ADAPTIVE: Sections = {
    "2.2": {
        "model.decoder.attention.score.hidden_size": 49,
        "model.decoder.attention.score.type": "additive",
    },
    "2.3": {
        "model.decoder.type": "recurrent",
        "model.decoder.cell.type": "lstm",
        "model.decoder.wiring.type": "adaptive",
        "model.decoder.pre_output.type": "sum",
    },
    "3": {
        "model.encoder.num_channels": 2048,
        "model.encoder.grid": (7, 7),
        "model.encoder.hidden_size": 512,
        "model.encoder.activation": "relu",
        "model.decoder.hidden_size": 512,
        "training.optimizer.type": "adam",
        "training.optimizer.learning_rate": 5e-4,
        "training.optimizer.beta1": 0.8,
        "training.optimizer.beta2": 0.999,
        "training.batching.max_tokens": 80 * TOKENS_PER_CAPTION,
        "training.patience": 6,
    },
    "5.1": {"tokenizers.tokenizer.type": "word", "tokenizers.tokenizer.min_frequency": 3},
    "5.2": {"decoding.beam_size": 3},
    "authors' code": {
        "model.decoder.embedding_size": 512,
        "model.decoder.dropout": 0.5,
        "model.encoder.dropout": 0.5,
        "training.max_grad_value": 0.1,
    },
    NOT_IN_PAPER: {
        "model.decoder.bridge.type": "no first state is printed",
        "training.max_grad_norm": "the authors' code clips values alone",
    },
}
CAPTION_NUMBERS: dict[str, Sections] = {
    "show-and-tell-2015": join(SHOW_AND_TELL, OURS),
    "show-attend-tell-2015-soft": join(SHOW_ATTEND_TELL, SOFT, OURS),
    "show-attend-tell-2015-hard": join(SHOW_ATTEND_TELL, HARD, OURS),
    "adaptive-attention-2017": join(ADAPTIVE, OURS),
}
