"""What every image test looks at."""

import numpy as np
import pytest

from heedful.inspection.attention_map import AttentionMap


@pytest.fixture
def latin():
    """A sentence whose attention_map is far from diagonal, with weights of every size."""
    return AttentionMap(
        source=["Servum", "bonum", "in", "horto", "puella", "videt", "."],
        target=["The", "girl", "sees", "the", "good", "slave", "in", "the", "garden", "."],
        weights=np.array(
            [
                [0.02, 0.01, 0.005, 0.015, 0.88, 0.05, 0.02],
                [0.015, 0.005, 0.002, 0.008, 0.93, 0.03, 0.01],
                [0.03, 0.01, 0.01, 0.02, 0.08, 0.82, 0.03],
                [0.61, 0.22, 0.01, 0.03, 0.02, 0.09, 0.02],
                [0.12, 0.83, 0.01, 0.02, 0.003, 0.012, 0.005],
                [0.91, 0.06, 0.004, 0.006, 0.01, 0.007, 0.003],
                [0.01, 0.005, 0.9, 0.07, 0.003, 0.002, 0.01],
                [0.005, 0.01, 0.24, 0.71, 0.015, 0.01, 0.01],
                [0.004, 0.006, 0.04, 0.92, 0.01, 0.01, 0.01],
                [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
            ]
        ),
        title="Latin to English",
    )


@pytest.fixture
def hostile():
    """Tokens that try to be markup, to hide, or to move their neighbors."""
    source = [
        "<img src=x onerror=window.harmed=1>",
        "</script><script>window.harmed=1</script>",
        "&amp;",
        "]]>",
        "\u202eevil",
        "\x00\x1b[31m\n\t",
        "\ud800",
        "\ufffe",
        "\u0301",
        "\u200d",
        " ",
        "",
        "\u65e5\u672c\u8a9e",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\u05e9\u05dc\u05d5\u05dd",
        "w" * 200,
    ]
    weights = np.full((2, len(source)), 1 / len(source))
    return AttentionMap(source, ['"quoted"', "<b>'bold'</b>"], weights, title="<script>&\n\u202e")
