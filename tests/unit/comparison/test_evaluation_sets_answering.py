import pytest

from heedful.comparison.evaluation_sets import BATCH_SIZE, decode_interleaved
from heedful.runs import load_translator
from tests.commands import LETTERS


@pytest.fixture
def translators(runs):
    return [load_translator(runs / name) for name in ("small-0", "large")]


def test_pieces_and_turns_change_no_output(translators):
    sources = [" ".join(LETTERS[: 1 + number % 8]) for number in range(BATCH_SIZE + 5)]
    asked = []

    def watch(pieces):
        asked.extend(map(len, pieces))
        yield from pieces

    found = decode_interleaved(translators, sources, beam_size=1, with_progress=watch)
    assert asked == [BATCH_SIZE, 5]
    for translator, answers in zip(translators, found, strict=True):
        wanted = translator.translate(sources, beam=1)
        assert answers.outputs == [result.text for result in wanted]
        assert answers.num_tokens == sum(len(result.tokens) for result in wanted)
        assert answers.seconds > 0


def test_every_round_is_begun_by_another(translators):
    order = []

    class Listed:
        def __init__(self, name, inner):
            self.name, self.inner = name, inner

        def translate(self, texts, *, beam=None):
            order.append((self.name, len(texts)))
            return self.inner.translate(texts[:1], beam=beam)

    listed = [Listed(name, each) for name, each in zip("ab", translators, strict=True)]
    decode_interleaved(listed, ["a"] * (2 * BATCH_SIZE + 1), beam_size=1)
    assert order == [
        *[("a", 16), ("b", 16)],
        *[("a", BATCH_SIZE), ("b", BATCH_SIZE)],
        *[("b", BATCH_SIZE), ("a", BATCH_SIZE)],
        *[("a", 1), ("b", 1)],
    ]
