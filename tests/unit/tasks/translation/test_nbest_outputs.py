"""N-best lists of a translator as `evaluate` scores them."""

from heedful.evaluation.base import compute_score
from heedful.evaluation.registry import MAX_NBEST, NBEST_METRICS
from heedful.tasks.translation.task import TranslationOutputs
from tests.unit.decoding.untrained import build_translator


def test_nbest_lists_are_those_of_a_widened_beam():
    translator = build_translator("character", min_length=2)
    sources = ["the dog", "a cat"]
    outputs = TranslationOutputs(
        translator, sources, [("x",), ("y",)], lambda stream, total: stream
    )
    metric = NBEST_METRICS["exact-match@5"]
    lines = outputs.metric_inputs(metric)
    expected = translator.translate(sources, n_best=MAX_NBEST)
    texts = [[best.text, *(other.text for other in best.alternatives)] for best in expected]
    assert [line.split("\t") for line in lines] == texts
    assert {len(row) for row in texts} == {MAX_NBEST}
    # The fourth of ten outputs is among the first five, the seventh is not.
    assert compute_score(metric, lines, [texts[0][3], texts[1][6]]).value == 50
