"""Transformer layers that have faster forms, and some that have none."""

import itertools

USUAL = [
    {"norm_placement": placement, "norm": norm, "feedforwards": [{"activation": activation}]}
    for placement, norm, activation in itertools.product(
        ("before", "after"), ("layer", "rms"), ("relu", "gelu")
    )
] + [
    {"attention": {"score": {"kind": "dot"}, "heads": {"num_heads": 2, "bias": True}}},
    {
        "attention": {
            "score": {"kind": "scaled-dot"},
            "align": {"kind": "softmax", "temperature": 0.5},
            "heads": {"num_heads": 4},
        }
    },
]
OTHERS = {
    "groups": {"attention": {"score": {"kind": "dot"}, "heads": {"num_heads": 4, "num_groups": 2}}},
    "other scores": {
        "attention": {"score": {"kind": "relative-buckets"}, "heads": {"num_heads": 2}}
    },
    "gated": {"feedforwards": [{"gated": True}]},
    "blocks": {"spans": [{"kind": "blocks"}]},
}
