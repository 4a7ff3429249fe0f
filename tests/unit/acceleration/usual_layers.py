"""Transformer layers that have faster forms, and some that have none."""

import itertools

DEFAULT_METRICS = [
    {"norm_order": placement, "norm": norm, "feed_forward": [{"activation": activation}]}
    for placement, norm, activation in itertools.product(
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
OTHERS = {
    "groups": {
        "attention": {"score": {"type": "dot"}, "multi_head": {"num_heads": 4, "num_kv_heads": 2}}
    },
    "other scores": {
        "attention": {"score": {"type": "relative-position-bias"}, "multi_head": {"num_heads": 2}}
    },
    "gated": {"feed_forward": [{"gated": True}]},
    "blocks": {"attention_types": [{"type": "block"}]},
}
