"""Numbers of papers behind recipes for one mechanism, by the section that prints them.

As `paper_numbers`. Most of these papers have another task, so most settings are ours: rows of the
sections are the mechanism itself, and what is known of the sizes.
"""

from tests.documents.paper_numbers import (
    GNMT,
    NOT_IN_PAPER,
    Sections,
    batch,
    join,
)

OURS: Sections = {
    NOT_IN_PAPER: {
        "tokenizers.*": "the paper has another task, or its vocabulary is not known to us",
        "data.filtering.max_length": "ours",
        "model.*coder.type": "recurrent encoder and decoder",
        "model.*coder.*size": "ours",
        "model.*coder.num_layers": "ours",
        "model.*coder.dropout": "ours",
        "model.encoder.direction.type": "ours",
        "model.decoder.wiring.*": "ours",
        "model.decoder.attention.score.hidden_size": "ours",
        "training.max_steps": "ours",
        "training.batching.*": "ours",
        "training.optimizer.*": "ours",
        "training.lr_scheduler.*": "ours",
        "training.metric_for_best_model": "ours",
        "decoding.*": "ours",
    }
}
MONOTONIC: Sections = {
    "2.2": {
        "model.decoder.attention.alignment.type": "monotonic",
        "model.decoder.attention.alignment.inference": "hard",
    },
    "2.5": {"model.decoder.attention.alignment.noise": 1.0},  # of unit variance
}
LSTM_WITH_ADDITIVE_SCORE: Sections = {
    NOT_IN_PAPER: {
        "model.*coder.cell.type": "ours",
        "model.decoder.attention.score.type": "ours",
    }
}

MECHANISM_NUMBERS: dict[str, Sections] = {
    "graves-2014-cosine": join(
        {
            "3.3.1": {
                "model.decoder.attention.score.type": "cosine",
                "model.decoder.attention.score.learned": True,
                "model.decoder.attention.alignment.type": "softmax",
            }
        },
        OURS,
        {
            NOT_IN_PAPER: {
                "model.*coder.cell.type": "as in bahdanau-2015",
                "model.decoder.attention.score.scale": "predicted at each step in the paper",
                "training.max_grad_norm": "as in bahdanau-2015",
            }
        },
    ),
    "xu-2015-hard": join(
        {
            "3.1.2": {"model.*coder.cell.type": "lstm", "model.decoder.embedding_size": 512},
            "4.1": {
                "model.decoder.attention.alignment.type": "sampled",
                "model.decoder.attention.alignment.baseline.momentum": 0.9,
                "model.decoder.attention.alignment.soft_probability": 0.5,
            },
            "authors' code": {
                "model.decoder.hidden_size": 1000,
                "model.decoder.attention.score.type": "additive",
                "model.decoder.attention.alignment.reward_scale": 0.1,
                "model.decoder.attention.alignment.entropy_bonus": 0.002,
                "model.decoder.attention.alignment.baseline.type": "moving-average",
                "training.batching.max_tokens": batch(64),
                "training.optimizer.type": "adam",
            },
        },
        OURS,
    ),
    "wu-2018-hard": join(
        {
            "abstract": {
                "model.decoder.attention.readout.type": "per-position",
                "model.decoder.output_head.type": "marginal",
            },
            "authors' scripts": {
                "model.*coder.embedding_size": 200,
                "model.encoder.hidden_size": 2 * 400,
                "model.encoder.num_layers": 2,
                "model.encoder.direction.type": "bidirectional",
                "model.decoder.hidden_size": 400,
                "model.decoder.num_layers": 1,
                "model.*coder.dropout": 0.4,
                "training.max_epochs": 50,
                "training.batching.max_tokens": 20 * 2 * 10,  # 10 characters per side
                "training.max_grad_norm": 5 / 10,
            },
            NOT_IN_PAPER: {
                "model.*coder.cell.type": "ours",
                "model.decoder.attention.score.type": "ours",
            },
        },
        OURS,
    ),
    "raffel-2017-monotonic": join(MONOTONIC, LSTM_WITH_ADDITIVE_SCORE, OURS),
    "chiu-2018-mocha": join(
        {
            "abstract": {"model.decoder.attention.alignment.type": "monotonic-chunkwise"},
            "3.1": {"model.decoder.attention.alignment.chunk_size": 2},
        },
        LSTM_WITH_ADDITIVE_SCORE,
        OURS,
    ),
    "peters-2019-entmax": join(
        {
            "abstract": {"model.decoder.attention.alignment.type": "entmax"},
            NOT_IN_PAPER: {
                "model.*coder.cell.type": "ours",
                "model.decoder.attention.score.type": "ours",
                "model.decoder.attention.alignment.alpha": "ours",
            },
        },
        OURS,
    ),
    "see-2017-coverage": join(
        {
            "2.3": {
                "model.decoder.attention.score.type": "additive",
                "model.decoder.attention.score.bias": True,
                "model.decoder.attention.score.features.0.type": "coverage",
                "model.decoder.attention.auxiliary_losses.0.type": "coverage",
                "model.decoder.attention.auxiliary_losses.0.weight": 1.0,
            },
            "authors' code": {
                "model.*coder.cell.type": "lstm",
                "model.*coder.embedding_size": 128,
                "model.encoder.hidden_size": 2 * 256,
                "model.encoder.direction.type": "bidirectional",
                "model.decoder.hidden_size": 256,
                "model.embeddings": "shared-inputs",
                "model.init.type": "uniform",
                "model.init.bound": 0.02,
                "data.filtering.max_length": 400,
                "tokenizers.type": "shared",
                "tokenizers.*.max_vocab_size": 50_000,
                "training.batching.max_tokens": 16 * (400 + 100),
                "training.optimizer.type": "adagrad",
                "training.optimizer.learning_rate": 0.15,
                "training.optimizer.initial_accumulator_value": 0.1,
                "training.max_grad_norm": 2.0,
                "decoding.beam_size": 4,
                "decoding.length_penalty.type": "mean",
            },
        },
        OURS,
    ),
    "bengio-2015-sampling": join(
        {
            "2.4": {"training.scheduled_sampling.type": "inverse-sigmoid"},
            "4.1": {"model.*coder.cell.type": "lstm", "model.*coder.hidden_size": 512},
        },
        OURS,
        {
            NOT_IN_PAPER: {
                "training.scheduled_sampling.k": "ours",
                "model.decoder.attention.score.type": "ours",
            }
        },
    ),
    "gnmt-2016-rl": join(
        {section: rows for section, rows in GNMT.items() if section != "8.3"},
        {
            "5": {
                "training.objective.type": "reinforce",
                "training.objective.reward": "gleu",
                "training.objective.num_samples": 15,
                "training.objective.mle_weight": 0.017,
                "training.objective.baseline": "mean",
            },
            "8.3": {
                "model.*coder.dropout": 0.0,  # "only applied during the ML training phase"
                "model.init.type": "uniform",
                "model.init.bound": 0.04,
                "training.batching.max_tokens": batch(128),
                "training.max_grad_norm": 5,
            },
            NOT_IN_PAPER: {
                "training.max_steps": "until the score stops rising in the paper",
                "training.optimizer.*": "ours",
                "training.lr_scheduler.*": "ours",
                "training.metric_for_best_model": "ours",
            },
        },
    ),
}
