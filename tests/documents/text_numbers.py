"""Numbers of papers on language models, taggers and classifiers, by the section that prints them.

As `paper_numbers`.
"""

import pytest

from tests.documents.paper_numbers import NOT_IN_PAPER, Sections

WINDOW = 35
"""Steps of a window, over which Zaremba et al. sum the loss that is a mean here."""
PTB_EPOCH = 929_000 // (20 * WINDOW)
"""Steps of an epoch of the Penn Treebank."""
ZAREMBA: Sections = {
    "3.1": {
        "model.backbone.type": "recurrent",
        "model.backbone.cell.type": "lstm",
        "model.dropout": 0.5,  # of embeddings and outputs
        "model.backbone.dropout": 0.5,
    },
    "4.1": {
        "tokenizers.tokenizer.type": "word",
        "tokenizers.tokenizer.max_vocab_size": 10_000,
        "model.backbone.num_layers": 2,
        "model.backbone.hidden_size": 650,
        "model.embedding_size": 650,
        "model.init.type": "uniform",
        "model.init.bound": 0.05,
        "model.tie_embeddings": False,
        "data.lm_batching.batch_size": 20,
        "data.lm_batching.context_length": WINDOW,
        "training.max_steps": 39 * PTB_EPOCH,
        "training.optimizer.type": "sgd",
        "training.optimizer.learning_rate": 1.0 * WINDOW,
        "training.lr_scheduler.type": "step-decay",
        "training.lr_scheduler.start_decay_step": 6 * PTB_EPOCH,
        "training.lr_scheduler.decay_steps": PTB_EPOCH,
        "training.lr_scheduler.factor": pytest.approx(1 / 1.2, rel=1e-3),
        "training.max_grad_norm": pytest.approx(5 / WINDOW, rel=1e-3),
    },
    NOT_IN_PAPER: {"tokenizers.type": "a language model has one vocabulary"},
}
WORDS = 14.5
"""Words of a sentence of CoNLL 2003: the loss of Lample et al. is that of a sentence."""
ONE_SENTENCE = {"training.batching.max_tokens": 1}
LAMPLE: Sections = {
    "2": {"model.output_head.type": "crf", "model.encoder.cell.type": "lstm"},
    "4.1": {
        "tokenizers.source.type": "word-character",
        "model.characters.type": "lstm",
        "model.characters.embedding_size": 25,
        "model.characters.hidden_size": 2 * 25,
        "model.characters.combine": "concat",
    },
    "4.2": {"model.encoder.embedding_size": 100 + 2 * 25},
    "4.3": {"model.encoder.dropout": 0.5, "model.dropout": 0.0, "model.characters.dropout": 0.0},
    "5.1": {
        "model.encoder.direction.type": "bidirectional",
        "model.encoder.hidden_size": 2 * 100,
        "model.encoder.num_layers": 1,
        "training.optimizer.type": "sgd",
        "training.optimizer.learning_rate": 0.01 * WORDS,
        "training.optimizer.momentum": 0.0,
        "training.max_grad_norm": pytest.approx(5 / WORDS, rel=0.01),
        **ONE_SENTENCE,
    },
    "authors' code": {
        "tokenizers.source.normalization.lowercase": True,
        "training.max_epochs": 100,
    },
    NOT_IN_PAPER: {
        "model.encoder.type": "recurrent",
        "tokenizers.*type": "how data of taggers is read",
        "training.max_steps": "the epochs of the authors' code, on CoNLL 2003",
        "training.lr_scheduler.type": "the paper has one rate",
        "training.metric_for_best_model": "ours",
    },
}
PLANK: Sections = {
    "2.1": {
        "model.encoder.cell.type": "lstm",
        "model.encoder.direction.type": "bidirectional",
        "model.characters.type": "lstm",
        "model.characters.combine": "concat",
        "model.output_head.type": "softmax",
    },
    "3": {
        "model.encoder.embedding_size": 128 + 2 * 100,
        "model.encoder.hidden_size": 2 * 100,
        "model.encoder.num_layers": 1,
        "model.characters.embedding_size": 100,
        "model.characters.hidden_size": 2 * 100,
        "model.encoder.dropout": 0.0,
        "training.max_epochs": 20,
        "training.optimizer.type": "sgd",
        "training.optimizer.learning_rate": pytest.approx(0.1 * 16),
        **ONE_SENTENCE,
    },
    NOT_IN_PAPER: {
        "model.encoder.type": "recurrent",
        "model.dropout": "the paper has noise instead, which heedful lacks",
        "tokenizers.*": "how data of taggers is read",
        "training.max_steps": "above the epochs",
        "training.max_grad_norm": "the default of the toolkit of the authors, per sentence",
        "training.lr_scheduler.type": "the paper has one rate",
        "training.metric_for_best_model": "ours",
    },
}
YANG: Sections = {
    "2.2": {
        "model.encoder.type": "hierarchical",
        "model.encoder.words.cell.type": "gru",
        "model.encoder.sentences.cell.type": "gru",
        "model.encoder.*.direction.type": "bidirectional",
        "model.encoder.pooling.type": "attention",
        "model.encoder.pooling.attention.score.type": "additive",
        "model.pooling.type": "attention",
        "model.pooling.attention.score.type": "additive",
        "tokenizers.source.type": "sentence-word",
    },
    "3.3": {
        "tokenizers.source.min_frequency": 5 + 1,  # "more than 5 times"
        "model.encoder.words.embedding_size": 200,
        "model.encoder.words.hidden_size": 2 * 50,
        "model.encoder.sentences.hidden_size": 2 * 50,
        "model.encoder.sentences.embedding_size": 2 * 50,
        "model.encoder.pooling.attention.score.hidden_size": 100,  # the context vectors
        "model.pooling.attention.score.hidden_size": 100,
        "training.optimizer.type": "sgd",
        "training.optimizer.momentum": 0.9,
        "training.batching.max_tokens": pytest.approx(64 * (150 + 2), rel=0.05),
    },
    NOT_IN_PAPER: {
        "model.encoder.*type": "recurrent layers",
        "model.dropout": "none is mentioned",
        "tokenizers.*": "labels, and a limit above any vocabulary of the paper",
        "training.optimizer.learning_rate": "chosen by grid search, and not printed",
        "training.lr_scheduler.type": "none is mentioned",
        "training.max_steps": "ours",
        "training.metric_for_best_model": "ours",
    },
}
TEXT_NUMBERS: dict[str, Sections] = {
    "yang-2016": YANG,
    "zaremba-2014": ZAREMBA,
    "lample-2016": LAMPLE,
    "plank-2016": PLANK,
}
