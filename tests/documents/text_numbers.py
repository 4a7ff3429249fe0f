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
TEXT_NUMBERS: dict[str, Sections] = {"zaremba-2014": ZAREMBA}
