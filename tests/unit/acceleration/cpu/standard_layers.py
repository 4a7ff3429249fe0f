"""Transformer settings with and without packed and unpadded layers."""

import itertools

STANDARD = [
    {"norm_order": norm_order, "norm": norm, "feed_forward": [{"activation": activation}]}
    for norm_order, norm, activation in itertools.product(
        ("pre", "post"), ("layer", "rms"), ("relu", "gelu")
    )
] + [
    {"attention": {"score": {"type": "dot"}, "multi_head": {"num_heads": 2, "bias": True}}},
    {
        "attention": {
            "score": {"type": "scaled-dot"},
            "alignment": {"type": "softmax", "temperature": 0.5},
            "multi_head": {"num_heads": 4},
        }
    },
]
OTHER = {
    "grouped heads": {
        "attention": {"score": {"type": "dot"}, "multi_head": {"num_heads": 4, "num_kv_heads": 2}}
    },
    "relative scores": {
        "attention": {"score": {"type": "relative-position-bias"}, "multi_head": {"num_heads": 2}}
    },
    "gated": {"feed_forward": [{"gated": True}]},
    "blocks": {"attention_types": [{"type": "block"}]},
}
