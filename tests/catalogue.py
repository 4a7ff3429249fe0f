"""Models and attention parts that law and equivalence tests run over, from the config unions."""

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter

import heedful.acceleration.kernels  # noqa: F401 - as in training and inference
from heedful.attention.additive_scores import ScoreFeatureConfig
from heedful.attention.alignments import (
    EntmaxAlignment,
    FixedAlignment,
    SoftmaxAlignment,
    SparsemaxAlignment,
)
from heedful.attention.config import AlignmentConfig, ScoreConfig
from heedful.attention.hard_alignment import (
    ArgmaxAlignment,
    Baseline,
    GumbelSoftmaxAlignment,
    SampledAlignment,
    StraightThroughAlignment,
)
from heedful.attention.local_alignment import LocalAlignment, MonotonicCenter, PredictiveCenter
from heedful.attention.monotonic_alignment import MonotonicAlignment, MonotonicChunkwiseAlignment
from heedful.attention.positional_encoding import PositionalEncodingConfig
from heedful.config.base import type_of, types_in
from heedful.data.text.batching import Batch, BatchSpec, SourceBatch, collate
from heedful.data.text.pair_dataset import InMemoryPairDataset
from heedful.layers.expert_gates import NoisyTopKGate, StrictlyBalancedGate
from heedful.layers.rnn_cells import CELL_CLASSES
from heedful.models.recurrent.bridge import BridgeConfig
from heedful.models.recurrent.config import WiringConfig
from heedful.models.recurrent.decoder_parts import PreOutputConfig
from heedful.models.recurrent.encoder import PoolingConfig
from heedful.recipes.recipe import ModelConfig
from heedful.tokenization.ragged_array import RaggedArray
from tests.forecasting import BACKBONES as FORECASTING_BACKBONES
from tests.forecasting import SIZES as FORECASTER

VOCABULARY = 11
WIDTH = 6


torch.manual_seed(0)  # the same parameters in every process
ALIGNMENTS = {
    type_of(member): member().build(query_size=WIDTH) for member in types_in(AlignmentConfig)
}
ALIGNMENTS["softmax, low temperature"] = SoftmaxAlignment(temperature=0.1)
ALIGNMENTS["entmax, alpha 1.01"] = EntmaxAlignment(1.01)
ALIGNMENTS["entmax, alpha 3"] = EntmaxAlignment(3.0)
ALIGNMENTS["entmax, learned"] = EntmaxAlignment(1.3, learned=True)
ALIGNMENTS["local-m"] = LocalAlignment(SoftmaxAlignment(), MonotonicCenter(), half_width=1)
ALIGNMENTS["local, gaussian before"] = LocalAlignment(
    SoftmaxAlignment(), PredictiveCenter(WIDTH, hidden_size=3), half_width=2, gaussian="before"
)
ALIGNMENTS["monotonic, parallel"] = MonotonicAlignment(
    algorithm="parallel", noise=0.0, inference="expected"
)
ALIGNMENTS["monotonic, expected"] = MonotonicAlignment(inference="expected")
ALIGNMENTS["monotonic-chunkwise, expected"] = MonotonicChunkwiseAlignment(
    MonotonicAlignment(inference="expected"), chunk_size=3
)
ALIGNMENTS["fixed, last"] = FixedAlignment("last")
ALIGNMENTS["fixed, diagonal"] = FixedAlignment("diagonal")
ALIGNMENTS["sampled, expected"] = SampledAlignment(
    SoftmaxAlignment(), Baseline(), inference="expected"
)
ALIGNMENTS["argmax of sparsemax"] = ArgmaxAlignment(SparsemaxAlignment())
ALIGNMENTS["straight-through, argmax"] = StraightThroughAlignment(
    SparsemaxAlignment(), sample_in_training=False
)
ALIGNMENTS["gumbel-softmax, straight-through"] = GumbelSoftmaxAlignment(
    SoftmaxAlignment(), temperature=0.1, straight_through=True
)
for alignment in ALIGNMENTS.values():
    alignment.eval()
STOCHASTIC = {  # random in training mode
    *(
        "sampled",
        "sampled, expected",
        "straight-through",
        "gumbel-softmax",
        "monotonic",
        "monotonic-chunkwise",
    ),
    *("monotonic, expected", "monotonic-chunkwise, expected", "gumbel-softmax, straight-through"),
}
HARD = {  # one-hot in eval mode
    name
    for name in ALIGNMENTS
    if name.startswith(("argmax", "sampled", "straight-through", "gumbel-softmax"))
} - {"sampled, expected"}
POSITIONAL = {  # weights depend on key positions, not only on scores
    name for name in ALIGNMENTS if name.startswith(("local", "monotonic"))
}

# Required settings without defaults.
REQUIRED: dict[str, dict[str, Any]] = {
    "sum": {"scores": [{"type": "bilinear"}, {"type": "location"}]},
}
SCORES = {
    type_of(member): member.model_validate(REQUIRED.get(type_of(member), {}))
    for member in types_in(ScoreConfig)
}
WIRINGS = [type_of(member) for member in types_in(WiringConfig)]

SMALL = {"type": "recurrent", "embedding_size": 5, "hidden_size": WIDTH}
NO_INPUT_FEEDING = {"type": "step-then-attend", "input_feeding": False}


def _system(decoder: dict[str, Any], encoder: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"encoder": {**SMALL, **(encoder or {})}, "decoder": {**SMALL, **decoder}}


HEADS = {"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}}
LAYERS = {
    "hidden_size": 8,
    "num_layers": 2,
    "attention": HEADS,
    "feed_forward": [{"intermediate_size": 12}],
}


def _transformer(
    both: dict[str, Any] | None = None, output_head: dict[str, Any] | None = None, **model: Any
) -> dict[str, Any]:
    side = {"type": "transformer", **LAYERS, **(both or {})}
    decoder = {**side, "output_head": {"type": "softmax", **(output_head or {})}}
    return {"encoder": side, "decoder": decoder, **model}


def _prefix_lm(backbone: dict[str, Any], **model: Any) -> dict[str, Any]:
    return {"type": "prefix-lm", "embedding_size": 5, "backbone": backbone, **model}


# Every member of a family once, with default neighbors: members are independent of each other, so
# the whole product would test the same at many times the cost.
SYSTEMS = {
    f"{cell}, {wiring}": _system({"cell": cell, "wiring": {"type": wiring}}, {"cell": cell})
    for cell, wiring in product(CELL_CLASSES, [name for name in WIRINGS if name != "deep-fusion"])
}
for score_type, score in SCORES.items():
    SYSTEMS[f"score {score_type}"] = _system({"attention": {"score": score.model_dump()}})
for member in types_in(ScoreFeatureConfig):
    features = {"type": "additive", "features": [{"type": type_of(member)}]}
    SYSTEMS[f"feature {type_of(member)}"] = _system({"attention": {"score": features}})
for member in types_in(AlignmentConfig):
    SYSTEMS[f"alignment {type_of(member)}"] = _system({"attention": {"alignment": member()}})
SYSTEMS["alignment fixed, diagonal"] = _system(
    {"attention": {"alignment": {"type": "fixed", "pattern": "diagonal"}}}
)
for alignment_type in ("softmax", "monotonic-marginal"):
    SYSTEMS[f"marginal over {alignment_type}"] = _system(
        {
            "wiring": NO_INPUT_FEEDING,
            "attention": {
                "alignment": {"type": alignment_type},
                "readout": {"type": "per-position"},
            },
            "output_head": {"type": "marginal"},
        }
    )
SYSTEMS |= {
    "argmax readout": _system({"attention": {"readout": {"type": "argmax"}}}),
    "gated readout": _system({"attention": {"readout": {"type": "gated"}}}),
    "heads": _system(
        {"attention": {"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}}}
    ),
    "multi-query heads": _system(
        {
            "attention": {
                "multi_head": {"num_heads": 3, "num_kv_heads": 1},
                "score": {"type": "bilinear"},
            }
        }
    ),
    "heads with coverage": _system(
        {
            "wiring": {"type": "step-then-attend"},
            "attention": {
                "multi_head": {"num_heads": 2},
                "score": {"type": "additive", "features": [{"type": "coverage"}]},
            },
        }
    ),
    "no input feeding": _system({"wiring": NO_INPUT_FEEDING}),
    "two layers, one direction": _system(
        {"num_layers": 2, "cell": "lstm"}, {"num_layers": 2, "direction": "forward"}
    ),
}
for member in types_in(PreOutputConfig):
    for wiring in ("attend-then-step", "constant-context"):
        SYSTEMS[f"{wiring}, output {type_of(member)}"] = _system(
            {"wiring": {"type": wiring}, "pre_output": {"type": type_of(member)}}
        )
for member in types_in(BridgeConfig):
    wiring = "final-state" if type_of(member) == "first-input" else "attend-then-step"
    SYSTEMS[f"bridge {type_of(member)}"] = _system(
        {"bridge": {"type": type_of(member)}, "wiring": {"type": wiring}}
    )
for member in types_in(PoolingConfig):
    SYSTEMS[f"pooling {type_of(member)}"] = _system({}, {"pooling": type_of(member)})
INTRA_ATTENTION_CELLS = ["self-attentive-rnn", "self-attentive-lstm", "lstmn"]
for cell in INTRA_ATTENTION_CELLS:
    SYSTEMS[f"{cell} in both"] = _system({"cell": cell}, {"cell": cell, "direction": "forward"})
SYSTEMS |= {
    "sutskever": _system(
        {
            "cell": "lstm",
            "num_layers": 2,
            "wiring": {"type": "final-state"},
            "bridge": {"type": "copy"},
        },
        {"cell": "lstm", "num_layers": 2, "direction": {"type": "forward", "reverse_source": True}},
    ),
    "show and tell": _system(
        {
            "cell": "lstm",
            "num_layers": 2,
            "wiring": {"type": "final-state"},
            "bridge": {"type": "first-input"},
        }
    ),
    "show, attend and tell": _system(
        {
            "cell": "lstm",
            "bridge": {"type": "mlp"},
            "attention": {
                "readout": {"type": "gated"},
                "auxiliary_losses": [{"type": "doubly-stochastic"}],
            },
            "pre_output": {"type": "deep-output"},
        }
    ),
    "adaptive attention": _system(
        {
            "cell": "lstm",
            "num_layers": 2,
            "wiring": {"type": "adaptive"},
            "bridge": {"type": "mlp"},
            "pre_output": {"type": "sum"},
        }
    ),
    "adaptive attention, heads": _system(
        {"wiring": {"type": "adaptive", "reads_summary": False}, "attention": HEADS}
    ),
    "cho": _system(
        {
            "num_layers": 2,
            "cell": {"type": "gru", "reset": "after-with-context"},
            "wiring": {"type": "constant-context"},
        },
        {"cell": {"type": "gru", "reset": "before"}, "summary_layer": True},
    ),
    "gnmt": _system(
        {"num_layers": 3, "first_residual_layer": 2, "wiring": {"type": "bottom-layer-attention"}},
        {"num_layers": 4, "direction": "bidirectional-then-forward", "connection": "residual"},
    ),
    "deep-att": _system(
        {}, {"num_layers": 3, "direction": "alternating", "connection": "fast-forward"}
    ),
    "deep-att, two columns": _system(
        {"num_layers": 2, "wiring": {"type": "bottom-layer-attention"}},
        {
            "num_layers": 3,
            "num_columns": 2,
            "direction": "alternating",
            "connection": {"type": "fast-forward", "shortcut_size": 4},
        },
    ),
    "experts": _system(
        {}, {"num_layers": 2, "experts": {"num_experts": 4, "intermediate_size": 8}}
    ),
    "experts, strictly balanced in groups": _system(
        {},
        {
            "num_layers": 2,
            "experts": {
                "num_experts": 8,
                "intermediate_size": 8,
                "gating": "strictly-balanced",
                "num_groups": 2,
            },
        },
    ),
    "experts in both, projected": _system(
        {
            "cell": {"type": "lstm", "cell_state_size": 9},
            "num_layers": 3,
            "first_residual_layer": 2,
            "wiring": {"type": "bottom-layer-attention"},
            "experts": {"num_experts": 4, "intermediate_size": 8},
        },
        {
            "cell": {"type": "lstm", "cell_state_size": 8},
            "num_layers": 2,
            "experts": {"num_experts": 4, "intermediate_size": 8},
        },
    ),
    "decoder with strictly balanced experts": _system(
        {
            "num_layers": 2,
            "wiring": NO_INPUT_FEEDING,
            "experts": {
                "num_experts": 8,
                "intermediate_size": 8,
                "gating": "strictly-balanced",
                "num_groups": 2,
            },
        }
    ),
    "decoder with experts, constant context": _system(
        {
            "num_layers": 2,
            "lower_attention": {},
            "wiring": {"type": "constant-context"},
            "experts": {"num_experts": 4, "intermediate_size": 8},
        }
    ),
    "lower attention": _system({}, {"num_layers": 2, "lower_attention": {}}),
    "decoder with lower attention": _system({"num_layers": 2, "lower_attention": {}}),
    "decoder with lower attention in heads": _system(
        {
            "num_layers": 3,
            "first_residual_layer": 2,
            "wiring": {"type": "bottom-layer-attention"},
            "lower_attention": HEADS,
        },
    ),
    "decoder with lower attention and coverage": _system(
        {
            "cell": "lstm",
            "num_layers": 2,
            "wiring": {"type": "step-then-attend"},
            "lower_attention": {"score": {"type": "additive", "features": [{"type": "coverage"}]}},
        },
    ),
    "decoder with lower attention, rotary": _system(
        {"num_layers": 2, "lower_attention": {"score": {"type": "rotary"}}},
    ),
    "deep fusion": _system(
        {"cell": "lstmn", "wiring": {"type": "deep-fusion"}},
        {"cell": "lstmn", "direction": "forward"},
    ),
}
for cell in (*CELL_CLASSES, *INTRA_ATTENTION_CELLS):
    SYSTEMS[f"prefix LM, {cell}"] = _prefix_lm({"cell": cell, "hidden_size": 6})
SYSTEMS["prefix LM, two layers"] = _prefix_lm({"hidden_size": 6, "num_layers": 2})
SYSTEMS["transformer"] = _transformer()
for score_type, score in SCORES.items():
    attention = {**HEADS, "score": score.model_dump()}
    SYSTEMS[f"transformer, score {score_type}"] = _transformer({"attention": attention})
for member in types_in(AlignmentConfig):
    attention = {**HEADS, "alignment": {"type": type_of(member)}}
    key = "cross_attention" if type_of(member) == "sampled" else "attention"
    system = _transformer()
    SYSTEMS[f"transformer, alignment {type_of(member)}"] = {
        **system,
        "decoder": {**system["decoder"], key: attention},
    }
SPANS = {
    "full": ["full"],
    "blocks": [{"type": "block", "block_size": 3}],
    "compressed": ["compressed"],
    "pairs": [{"type": "compressed", "stride": 2}],
    "both": [{"type": "block", "block_size": 4}, {"type": "compressed", "stride": 3}],
}
BACKBONE = {"type": "transformer", **LAYERS}
for span, spans in SPANS.items():
    SYSTEMS[f"transformer, span {span}"] = _transformer({"attention_types": spans})
    SYSTEMS[f"decoder only, span {span}"] = _prefix_lm(
        {**BACKBONE, "attention_types": spans},
        embedding_size=8,
        positional_encoding={"type": "sinusoidal"},
    )
for score_type in ("alibi", "rotary", "relative-key", "relative-position-bias"):
    attention = {**HEADS, "score": {"type": score_type}}
    SYSTEMS[f"decoder only, score {score_type}"] = _prefix_lm(
        {**BACKBONE, "attention": attention}, embedding_size=8
    )
    SYSTEMS[f"decoder only, score {score_type} in blocks"] = _prefix_lm(
        {**BACKBONE, "attention": attention, "attention_types": SPANS["blocks"]},
        embedding_size=8,
        positional_encoding={
            "type": "sinusoidal"
        },  # without positions, swapped blocks would have the same score
    )
SYSTEMS |= {
    "transformer, features": _transformer(
        {"attention": {**HEADS, "score": {"type": "additive", "features": [{"type": "coverage"}]}}}
    ),
    "transformer, pre-norm": _transformer({"norm_order": "pre"}),
    "transformer, alignment head": {
        **_transformer(),
        "decoder": {**_transformer()["decoder"], "alignment_layer": 1, "alignment_heads": 1},
    },
    **{
        f"transformer, same-layer cross-attention, {order}-norm": {
            **_transformer({"norm_order": order}),
            "decoder": {
                **_transformer({"norm_order": order})["decoder"],
                "cross_attention_to": "same-layer",
            },
        }
        for order in ("post", "pre")
    },
    "transformer, rms norms": _transformer({"norm": "rms", "embedding_norm": True}),
    "transformer, gated": _transformer(
        {"feed_forward": [{"intermediate_size": 12, "activation": "swish", "gated": True}]}
    ),
    "transformer, experts": _transformer(
        {"feed_forward": [{}, {"type": "moe", "num_experts": 4, "intermediate_size": 8}]}
    ),
    "transformer, no heads": _transformer({"attention": {"score": {"type": "scaled-dot"}}}),
    "transformer, one group": _transformer(
        {"attention": {**HEADS, "multi_head": {"num_heads": 4, "num_kv_heads": 1}}}
    ),
    "transformer, no positions": _transformer({"positional_encoding": None}),
    "transformer, learned positions": _transformer({"positional_encoding": {"type": "learned"}}),
    "transformer, concatenated index": _transformer({"positional_encoding": {"type": "index"}}),
    "transformer, shared embeddings": _transformer(embeddings="shared"),
    "transformer, no output bias": _transformer(
        {"feed_forward": [{"intermediate_size": 12, "activation": "gelu-tanh"}]},
        output_head={"bias": False},
    ),
    "transformer over a recurrence": {
        "encoder": {**SMALL},
        "decoder": {"type": "transformer", **LAYERS},
    },
    "transformer over stacked recurrences, same-layer cross-attention": {
        "encoder": {**SMALL, "num_layers": LAYERS["num_layers"]},
        "decoder": {"type": "transformer", **LAYERS, "cross_attention_to": "same-layer"},
    },
    "recurrence over a transformer": {
        "encoder": {"type": "transformer", **LAYERS},
        "decoder": {**SMALL},
    },
    "decoder only, both learned": _prefix_lm(
        BACKBONE,
        embedding_size=8,
        positional_encoding={"type": "sinusoidal"},
        loss_on="both",
        embeddings="tied",
        lm_head_bias=False,
    ),
}
CONVOLUTIONAL = {
    "type": "convolutional",
    "embedding_size": 5,
    "layers": [
        {"num_layers": 2, "hidden_size": 6, "kernel_size": 3},
        {"hidden_size": 4, "kernel_size": 1},
    ],
}
DILATED = {"type": "dilated", "hidden_size": 3, "dilations": [1, 2]}
SYSTEMS |= {
    "convolutional": {"encoder": CONVOLUTIONAL, "decoder": CONVOLUTIONAL},
    "convolutional, additive": {
        "encoder": CONVOLUTIONAL,
        "decoder": {**CONVOLUTIONAL, "attention": {"score": {"type": "additive"}}},
    },
    "convolutional, coverage in heads": {
        "encoder": CONVOLUTIONAL,
        "decoder": {
            **CONVOLUTIONAL,
            "attention": {
                "multi_head": {"num_heads": 2, "head_dim": 3},
                "score": {"type": "additive", "features": [{"type": "coverage"}]},
            },
        },
    },
    "convolutional, monotonic without positions": {
        "encoder": {**CONVOLUTIONAL, "positional_encoding": None},
        "decoder": {
            **CONVOLUTIONAL,
            "attention": {"alignment": {"type": "monotonic"}},
            "positional_encoding": None,
            "output_size": 3,
        },
    },
    "dilated": {"encoder": {**DILATED, "length_factor": 1.3}, "decoder": DILATED},
    "dilated, even kernel": {
        "encoder": {**DILATED, "length_offset": 2},
        "decoder": {**DILATED, "kernel_size": 2, "dilations": [1, 3], "num_repeats": 2},
    },
    "recurrence over a bag of words": {
        "encoder": {"type": "bag-of-words", "embedding_size": 5},
        "decoder": {**SMALL},
    },
    "recurrence over convolutions": {"encoder": CONVOLUTIONAL, "decoder": {**SMALL}},
    "transformer over convolutions": {
        "encoder": CONVOLUTIONAL,
        "decoder": {
            "type": "transformer",
            **LAYERS,
            "attention": {**HEADS, "multi_head": {"num_heads": 2, "head_dim": 4}},
        },
    },
}
COPYING_HEADS = {
    "pointer-generator": {"type": "pointer-generator"},
    "copy": {"type": "copy"},
    "copynet": {"type": "copynet", "selective_read": False},
}
for head_name, head in COPYING_HEADS.items():
    SYSTEMS |= {
        f"{head_name}, recurrent": _system(
            {"output_head": head, "wiring": {"type": "step-then-attend"}}
        ),
        f"{head_name}, transformer": _transformer(output_head=head),
        f"{head_name}, convolutional": {
            "encoder": CONVOLUTIONAL,
            "decoder": {**CONVOLUTIONAL, "output_head": head},
        },
    }
SYSTEMS |= {
    "copynet, selective read": _system({"output_head": {"type": "copynet"}}),
    "pointer-generator, gate on the cell state": _system(
        {
            "cell": "lstm",
            "num_layers": 2,
            "output_head": {"type": "pointer-generator", "gate_reads_cell_state": True},
        },
        {"cell": "lstm"},
    ),
    "pointer-generator, shared inputs": {
        **_system({"output_head": {"type": "pointer-generator"}}),
        "embeddings": "shared-inputs",
    },
    "pointer-generator, coverage": _system(
        {
            "output_head": {"type": "pointer-generator"},
            "attention": {
                "score": {"type": "additive", "features": [{"type": "coverage"}]},
                "auxiliary_losses": [{"type": "coverage"}],
            },
        }
    ),
}
PRETRAINED = {"type": "pretrained", "path": "runs/initial"}
SYSTEMS |= {
    "recurrence over a mixed language model": {
        "encoder": {
            **PRETRAINED,
            "pool": "scalar-mix",
            "model": {
                "type": "language-model",
                "embedding_size": 6,
                "backbone": {"hidden_size": 6, "num_layers": 2},
            },
            "encoder": SMALL,
        },
        "decoder": {**SMALL},
    },
    "transformer over a fine-tuned transformer": {
        "encoder": {
            **PRETRAINED,
            "tune": "all",
            "prepend_bos": True,
            "model": {"type": "transformer", **LAYERS},
        },
        "decoder": {"type": "transformer", **LAYERS},
    },
}
for member in types_in(PositionalEncodingConfig):
    SYSTEMS[f"positions {type_of(member)}"] = _system(
        {}, {"positional_encoding": {"type": type_of(member)}}
    )

# Taggers: every output head, character encoder and encoder at least once; for `tagged_store()`.
TAGGERS = {
    f"tagger, {name}": {"type": "sequence-tagger", "dropout": 0, **settings}
    for name, settings in {
        "softmax, transformer": {"encoder": {"type": "transformer", **LAYERS}},
        "crf, recurrent": {"encoder": SMALL, "output_head": "crf"},
        "convolution over characters": {
            "encoder": DILATED,
            "characters": {"type": "convolution", "embedding_size": 3, "num_filters": 4},
        },
        "LSTM over characters": {
            "encoder": CONVOLUTIONAL,
            "characters": {"type": "lstm", "embedding_size": 3, "hidden_size": 4},
        },
        "crf over a mixed language model": {
            "encoder": SYSTEMS["recurrence over a mixed language model"]["encoder"],
            "output_head": "crf",
        },
        "softmax over pieces of words": {
            "encoder": {
                **SYSTEMS["transformer over a fine-tuned transformer"]["encoder"],
                "splits_words": True,
            },
        },
    }.items()
}

FORECASTERS = {
    f"forecaster, {backbone}": {**FORECASTER, **settings}
    for backbone, settings in FORECASTING_BACKBONES.items()
}


_MODEL_CONFIG: TypeAdapter[Any] = TypeAdapter(ModelConfig)


DIVERSE_SYSTEMS = [  # different kinds of attention and state
    "gru, attend-then-step",
    "alignment argmax",
    "alignment monotonic",
    "alignment monotonic-chunkwise",
    "feature coverage",
    "marginal over softmax",
    "pointer-generator, coverage",
    "copynet, selective read",
    "heads with coverage",
    "sutskever",
    "lstmn in both",
    "experts in both, projected",
    "prefix LM, gru",
    "decoder only, span both",
    "transformer",
    "transformer, alignment monotonic",
    "convolutional",
    "dilated",
]


def quick_or_wide(names: Iterable[str]) -> list[Any]:
    """Diverse systems are tested by `make test`, the others of a family by `make test-wide`."""
    return [
        pytest.param(name, marks=() if is_quick else pytest.mark.wide)
        for name in names
        for is_quick in [name in DIVERSE_SYSTEMS or name not in SYSTEMS]
    ]


each_system = pytest.mark.parametrize("name", quick_or_wide(SYSTEMS))


def build(name: str) -> Any:
    """Build an untrained model with parameters large enough to give distinct outputs."""
    torch.manual_seed(1)
    config = _MODEL_CONFIG.validate_python((SYSTEMS | TAGGERS | FORECASTERS)[name])
    model = config.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2)
        for module in model.modules():
            if isinstance(module, NoisyTopKGate):  # at zero all experts are tied
                module.score.weight.normal_()
            if isinstance(module, StrictlyBalancedGate):  # above one no expert would be selected
                module.threshold.div_(4)
    return model


def texts(count: int = 7, max_length: int = 9) -> list[list[int]]:
    """Return sequences of real tokens with lengths from 1 up."""
    generator = torch.Generator().manual_seed(2)
    lengths = [1 + (3 * index) % max_length for index in range(count)]
    return [
        torch.randint(4, VOCABULARY, (length,), generator=generator).tolist() for length in lengths
    ]


def store(count: int = 7) -> InMemoryPairDataset:
    """Return a small corpus whose targets are the reversed sources plus one token."""
    sources = texts(count)
    return InMemoryPairDataset(
        RaggedArray.from_sequences(sources),
        RaggedArray.from_sequences([[*text[::-1], 5] for text in sources]),
    )


def tagged_store(count: int = 7) -> InMemoryPairDataset:
    """Return sentences with a tag for each word; words have up to three characters."""
    sentences = texts(count)
    sources = [
        [part for word in words for part in (word, *range(VOCABULARY, VOCABULARY + word % 4))]
        for words in sentences
    ]
    return InMemoryPairDataset(
        RaggedArray.from_sequences(sources),
        RaggedArray.from_sequences([words[::-1] for words in sentences]),
    )


def batch(corpus: InMemoryPairDataset, rows: list[int], extra: int = 0) -> Batch:
    """Collate these rows into one batch with `extra` columns of padding."""
    import numpy as np

    indices = np.array(rows)
    source = int(corpus.source.lengths_at(indices).max()) + 1 + extra
    target = int(corpus.target.lengths_at(indices).max()) + 1 + extra
    return collate(corpus, BatchSpec(indices, source, target))


def select_source(sources: SourceBatch, row: int) -> SourceBatch:
    """Return one row of a batch of sources without its padding."""
    length = sources.lengths[row : row + 1]
    return SourceBatch(sources.tokens[row : row + 1, : int(length)], length)
