"""The families that laws and equivalences are tested over, as the configuration lists them."""

from itertools import product
from typing import Any

import torch
from pydantic import TypeAdapter

from heedful.attention import Entmax, Softmax
from heedful.attention.centres import PredictedCentre, StepCentre
from heedful.attention.choices.alignments import AlignmentConfig
from heedful.attention.choices.features import FeatureConfig
from heedful.attention.choices.positions import PositionConfig
from heedful.attention.choices.scores import ScoreConfig
from heedful.attention.chunkwise import Chunkwise
from heedful.attention.local import Local
from heedful.attention.monotonic import Monotonic
from heedful.config.choice import kind_of, types_in
from heedful.data.batching import Shape
from heedful.data.collate import Batch, Sources, collate
from heedful.data.store import PairStore, Ragged
from heedful.decoders.bridges import BridgeConfig
from heedful.decoders.outputs import OutputConfig
from heedful.decoders.wiring_choices import WiringConfig
from heedful.layers.cells import CELLS
from heedful.layers.experts import NoisyTopGate
from heedful.layers.pooling import PoolingConfig
from heedful.tasks.config import ModelConfig
from heedful.tasks.model import Model

VOCABULARY = 11
WIDTH = 6


torch.manual_seed(0)  # the same members in every process
ALIGNMENTS = {
    kind_of(member): member().build(query_size=WIDTH) for member in types_in(AlignmentConfig)
}
ALIGNMENTS["sharp softmax"] = Softmax(temperature=0.1)
ALIGNMENTS["entmax near softmax"] = Entmax(1.01)
ALIGNMENTS["entmax beyond sparsemax"] = Entmax(3.0)
ALIGNMENTS["learned entmax"] = Entmax(1.3, learned=True)
ALIGNMENTS["local by step"] = Local(Softmax(), StepCentre(), reach=1)
ALIGNMENTS["local that shares all"] = Local(
    Softmax(), PredictedCentre(WIDTH, hidden_size=3), reach=2, taper="before"
)
ALIGNMENTS["monotonic in parallel"] = Monotonic(form="parallel", noise=0.0)
ALIGNMENTS["monotonic in expectation"] = Monotonic(at_test="expected")
ALIGNMENTS["chunkwise in expectation"] = Chunkwise(Monotonic(at_test="expected"), width=3)
for align in ALIGNMENTS.values():
    align.eval()
AT_RANDOM = {  # those that draw while they learn
    *("sampled", "straight-through", "gumbel-softmax", "monotonic", "chunkwise"),
    *("monotonic in expectation", "chunkwise in expectation"),
}
HARD = {"argmax", "sampled", "straight-through", "gumbel-softmax"}  # one place, when asked
BY_PLACE = {  # those that ask where a key stands, not only how strongly it calls
    name for name in ALIGNMENTS if name.startswith(("local", "monotonic", "chunkwise"))
}

# What a family member needs beyond its defaults, as settings.
REQUIRED: dict[str, dict[str, Any]] = {
    "sum": {"scores": [{"kind": "bilinear"}, {"kind": "location"}]},
}
SCORES = {
    kind_of(member): member.model_validate(REQUIRED.get(kind_of(member), {}))
    for member in types_in(ScoreConfig)
}
WIRINGS = [kind_of(member) for member in types_in(WiringConfig)]

SMALL = {"kind": "recurrent", "embedding_size": 5, "hidden_size": WIDTH}
UNFED = {"kind": "step-then-attend", "input_feeding": False}


def _system(decoder: dict[str, Any], encoder: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"encoder": {**SMALL, **(encoder or {})}, "decoder": {**SMALL, **decoder}}


HEADS = {"heads": {"num_heads": 2}, "score": {"kind": "scaled-dot"}}
LAYERS = {
    "size": 8,
    "num_layers": 2,
    "attention": HEADS,
    "feedforwards": [{"hidden_size": 12}],
}


def _transformer(both: dict[str, Any] | None = None, **model: Any) -> dict[str, Any]:
    side = {"kind": "transformer", **LAYERS, **(both or {})}
    return {"encoder": side, "decoder": side, **model}


def _continuation(reader: dict[str, Any], **model: Any) -> dict[str, Any]:
    return {"kind": "continuation", "embedding_size": 5, "reader": reader, **model}


# Every member of a family once, among usual neighbours: no member knows what surrounds it, so the
# whole product would say the same at many times the cost.
SYSTEMS = {
    f"{cell}, {wiring}": _system({"cell": cell, "wiring": {"kind": wiring}}, {"cell": cell})
    for cell, wiring in product(CELLS, [each for each in WIRINGS if each != "deep-fusion"])
}
for kind, score in SCORES.items():
    SYSTEMS[f"score {kind}"] = _system({"attention": {"score": score.model_dump()}})
for member in types_in(FeatureConfig):
    features = {"kind": "additive", "features": [{"kind": kind_of(member)}]}
    SYSTEMS[f"feature {kind_of(member)}"] = _system({"attention": {"score": features}})
for member in types_in(AlignmentConfig):
    SYSTEMS[f"alignment {kind_of(member)}"] = _system({"attention": {"align": member()}})
for align in ("softmax", "monotonic-marginal"):
    SYSTEMS[f"marginal over {align}"] = _system(
        {
            "wiring": UNFED,
            "attention": {"align": {"kind": align}, "read": {"kind": "per-position"}},
            "emission": {"kind": "marginal"},
        }
    )
SYSTEMS |= {
    "selection": _system({"attention": {"read": {"kind": "selection"}}}),
    "gated": _system({"attention": {"read": {"kind": "gated"}}}),
    "heads": _system({"attention": {"heads": {"num_heads": 2}, "score": {"kind": "scaled-dot"}}}),
    "heads in one group": _system(
        {"attention": {"heads": {"num_heads": 3, "num_groups": 1}, "score": {"kind": "bilinear"}}}
    ),
    "heads with coverage": _system(
        {
            "wiring": {"kind": "step-then-attend"},
            "attention": {
                "heads": {"num_heads": 2},
                "score": {"kind": "additive", "features": [{"kind": "coverage"}]},
            },
        }
    ),
    "no input feeding": _system({"wiring": UNFED}),
    "two layers, one direction": _system(
        {"num_layers": 2, "cell": "lstm"}, {"num_layers": 2, "direction": "forwards"}
    ),
}
for member in types_in(OutputConfig):
    for wiring in ("attend-then-step", "constant-context"):
        SYSTEMS[f"{wiring}, output {kind_of(member)}"] = _system(
            {"wiring": {"kind": wiring}, "output": {"kind": kind_of(member)}}
        )
for member in types_in(BridgeConfig):
    SYSTEMS[f"bridge {kind_of(member)}"] = _system({"bridge": {"kind": kind_of(member)}})
for member in types_in(PoolingConfig):
    SYSTEMS[f"summary {kind_of(member)}"] = _system({}, {"summary": kind_of(member)})
TAPED = ["self-attentive-rnn", "self-attentive-lstm", "lstmn"]
for cell in TAPED:
    SYSTEMS[f"{cell} in both"] = _system({"cell": cell}, {"cell": cell, "direction": "forwards"})
SYSTEMS |= {
    "sutskever": _system(
        {
            "cell": "lstm",
            "num_layers": 2,
            "wiring": {"kind": "final-state"},
            "bridge": {"kind": "copy"},
        },
        {"cell": "lstm", "num_layers": 2, "direction": {"kind": "forwards", "reversed": True}},
    ),
    "gnmt": _system(
        {"num_layers": 3, "residual_from": 2, "wiring": {"kind": "bottom-asks"}},
        {"num_layers": 4, "direction": "both-then-forwards", "connection": "residual"},
    ),
    "deep-att": _system(
        {}, {"num_layers": 3, "direction": "alternating", "connection": "fast-forward"}
    ),
    "experts": _system({}, {"num_layers": 2, "experts": {"num_experts": 4, "hidden_size": 8}}),
    "looks down": _system({}, {"num_layers": 2, "looks_down": {}}),
    "deep fusion": _system(
        {"cell": "lstmn", "wiring": {"kind": "deep-fusion"}},
        {"cell": "lstmn", "direction": "forwards"},
    ),
}
for cell in (*CELLS, *TAPED):
    SYSTEMS[f"continuation, {cell}"] = _continuation({"cell": cell, "hidden_size": 6})
SYSTEMS["continuation, two layers"] = _continuation({"hidden_size": 6, "num_layers": 2})
SYSTEMS["transformer"] = _transformer()
for kind, score in SCORES.items():
    looking = {**HEADS, "score": score.model_dump()}
    SYSTEMS[f"transformer, score {kind}"] = _transformer({"attention": looking})
for member in types_in(AlignmentConfig):
    looking = {**HEADS, "align": {"kind": kind_of(member)}}
    where = "source_attention" if kind_of(member) == "sampled" else "attention"
    system = _transformer()
    SYSTEMS[f"transformer, alignment {kind_of(member)}"] = {
        **system,
        "decoder": {**system["decoder"], where: looking},
    }
SPANS = {
    "full": ["full"],
    "blocks": [{"kind": "blocks", "size": 3}],
    "compressed": ["compressed"],
    "pairs": [{"kind": "compressed", "stride": 2}],
    "both": [{"kind": "blocks", "size": 4}, {"kind": "compressed", "stride": 3}],
}
READER = {"kind": "transformer", **LAYERS}
for span, spans in SPANS.items():
    SYSTEMS[f"transformer, span {span}"] = _transformer({"spans": spans})
    SYSTEMS[f"decoder only, span {span}"] = _continuation(
        {**READER, "spans": spans}, embedding_size=8, positions={"kind": "sinusoidal"}
    )
for kind in ("alibi", "rotary", "relative-keys", "relative-buckets"):
    looking = {**HEADS, "score": {"kind": kind}}
    SYSTEMS[f"decoder only, score {kind}"] = _continuation(
        {**READER, "attention": looking}, embedding_size=8
    )
    SYSTEMS[f"decoder only, score {kind} in blocks"] = _continuation(
        {**READER, "attention": looking, "spans": SPANS["blocks"]},
        embedding_size=8,
        positions={"kind": "sinusoidal"},  # without, blocks can change places for the same score
    )
SYSTEMS |= {
    "transformer, features": _transformer(
        {"attention": {**HEADS, "score": {"kind": "additive", "features": [{"kind": "coverage"}]}}}
    ),
    "transformer, norms before": _transformer({"norm_placement": "before"}),
    "transformer, rms norms": _transformer({"norm": "rms", "embedding_norm": True}),
    "transformer, gated": _transformer(
        {"feedforwards": [{"hidden_size": 12, "activation": "swish", "gated": True}]}
    ),
    "transformer, experts": _transformer(
        {"feedforwards": [{}, {"kind": "experts", "num_experts": 4, "hidden_size": 8}]}
    ),
    "transformer, no heads": _transformer({"attention": {"score": {"kind": "scaled-dot"}}}),
    "transformer, one group": _transformer(
        {"attention": {**HEADS, "heads": {"num_heads": 4, "num_groups": 1}}}
    ),
    "transformer, no positions": _transformer({"positions": None}),
    "transformer, learned positions": _transformer({"positions": {"kind": "learned"}}),
    "transformer, shared embeddings": _transformer(embeddings="shared"),
    "transformer over a recurrence": {
        "encoder": {**SMALL},
        "decoder": {"kind": "transformer", **LAYERS},
    },
    "recurrence over a transformer": {
        "encoder": {"kind": "transformer", **LAYERS},
        "decoder": {**SMALL},
    },
    "decoder only, both learned": _continuation(
        READER,
        embedding_size=8,
        positions={"kind": "sinusoidal"},
        learned="both",
        embeddings="tied",
    ),
}
CONVOLVED = {
    "kind": "convolutional",
    "embedding_size": 5,
    "layers": [{"count": 2, "size": 6, "kernel": 3}, {"size": 4, "kernel": 1}],
}
DILATED = {"kind": "dilated", "hidden_size": 3, "dilations": [1, 2]}
SYSTEMS |= {
    "convolutional": {"encoder": CONVOLVED, "decoder": CONVOLVED},
    "convolutional, additive": {
        "encoder": CONVOLVED,
        "decoder": {**CONVOLVED, "attention": {"score": {"kind": "additive"}}},
    },
    "dilated": {"encoder": {**DILATED, "length_factor": 1.3}, "decoder": DILATED},
    "recurrence over convolutions": {"encoder": CONVOLVED, "decoder": {**SMALL}},
    "transformer over convolutions": {
        "encoder": CONVOLVED,
        "decoder": {
            "kind": "transformer",
            **LAYERS,
            "attention": {**HEADS, "heads": {"num_heads": 2, "head_size": 4}},
        },
    },
}
for member in types_in(PositionConfig):
    SYSTEMS[f"positions {kind_of(member)}"] = _system({}, {"positions": {"kind": kind_of(member)}})


def build(name: str) -> Model:
    """An untrained system with weights large enough to make its outputs differ."""
    torch.manual_seed(1)
    config = TypeAdapter(ModelConfig).validate_python(SYSTEMS[name])
    model = config.build(source_size=VOCABULARY, target_size=VOCABULARY).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2)
        for module in model.modules():
            if isinstance(module, NoisyTopGate):  # at zero all experts are as good
                module.score.weight.normal_()
    return model


def texts(count: int = 7, longest: int = 9) -> list[list[int]]:
    """Sequences of real tokens of every length from 1 up."""
    generator = torch.Generator().manual_seed(2)
    lengths = [1 + (3 * number) % longest for number in range(count)]
    return [
        torch.randint(4, VOCABULARY, (length,), generator=generator).tolist() for length in lengths
    ]


def store(count: int = 7) -> PairStore:
    """A small corpus whose targets are the sources turned round, with one token more."""
    sources = texts(count)
    return PairStore(Ragged.pack(sources), Ragged.pack([[*text[::-1], 5] for text in sources]))


def batch(corpus: PairStore, rows: list[int], extra: int = 0) -> Batch:
    """These rows as one batch, `extra` columns wider than needed."""
    import numpy as np

    places = np.array(rows)
    source = int(corpus.source.lengths_of(places).max()) + 1 + extra
    target = int(corpus.target.lengths_of(places).max()) + 1 + extra
    return collate(corpus, Shape(places, source, target))


def only(sources: Sources, row: int) -> Sources:
    """One row of a batch of sources, without its padding."""
    length = sources.lengths[row : row + 1]
    return Sources(sources.tokens[row : row + 1, : int(length)], length)
