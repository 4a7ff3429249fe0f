import pytest

from heedful.comparison.test_sets import BATCH_SIZE, decode_interleaved
from heedful.runs import load
from tests.commands import LETTERS


@pytest.fixture
def translators(runs):
    return [load(runs / name, settings=["decoding.beam_size=1"]) for name in ("small-0", "large")]


def test_interleaving_does_not_change_outputs(translators):
    sources = [" ".join(LETTERS[: 1 + number % 8]) for number in range(BATCH_SIZE + 5)]
    batch_sizes = []

    def watch(batches):
        batch_sizes.extend(map(len, batches))
        yield from batches

    results = decode_interleaved(translators, sources, with_progress=watch)
    assert batch_sizes == [BATCH_SIZE, 5]
    for translator, result in zip(translators, results, strict=True):
        expected = translator.translate(sources)
        assert result.outputs == [translation.text for translation in expected]
        assert result.num_tokens == sum(len(translation.tokens) for translation in expected)
        assert result.seconds > 0


def test_another_predictor_starts_every_round(translators):
    order = []

    class LoggingPredictor:
        def __init__(self, name, inner):
            self.name, self.inner = name, inner

        def predict(self, texts):
            order.append((self.name, len(texts)))
            return self.inner.predict(texts[:1])

    predictors = [
        LoggingPredictor(name, translator)
        for name, translator in zip("ab", translators, strict=True)
    ]
    decode_interleaved(predictors, ["a"] * (2 * BATCH_SIZE + 1))
    assert order == [
        *[("a", 16), ("b", 16)],
        *[("a", BATCH_SIZE), ("b", BATCH_SIZE)],
        *[("b", BATCH_SIZE), ("a", BATCH_SIZE)],
        *[("a", 1), ("b", 1)],
    ]
