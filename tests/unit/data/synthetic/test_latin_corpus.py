"""The Latin corpus as a user sees it."""

import re
import time
from collections import defaultdict
from itertools import islice

import pytest

from heedful.data.synthetic import get_corpus
from heedful.data.synthetic.latin.corpus import reserved_names

pytestmark = pytest.mark.wide


@pytest.fixture(scope="module")
def pairs():
    return list(islice(get_corpus("latin").pairs("train"), 20_000))


def words(text):
    return re.findall(r"[\w-]+", text)


def draw(split, count, seed=0):
    return list(islice(get_corpus("latin").pairs(split, seed=seed), count))


def test_sentences_have_the_same_capitalization_and_punctuation(pairs):
    for source, target in pairs:
        assert source[0].isupper()
        assert target[0].isupper()
        assert source[-1] == target[-1]
        assert source[-1] in ".?!"


def test_sentences_are_ascii_words_with_single_spaces(pairs):
    for pair in pairs:
        for text in pair:
            assert re.fullmatch(r"[A-Za-z-]+,?( [A-Za-z-]+,?)*[.?!]", text), text


def test_sentences_have_two_to_twelve_words(pairs):
    lengths = {len(words(pair.source)) for pair in pairs}
    assert min(lengths) == 2
    assert max(lengths) <= 12
    assert {2, 3, 4, 5, 6, 7, 8} <= lengths


def test_translations_have_several_word_orders(pairs):
    orders = defaultdict(set)
    for pair in pairs:
        orders[pair.target].add(pair.source)
    several = [sources for sources in orders.values() if len(sources) > 1]
    assert len(several) > 100
    assert any(
        len({tuple(sorted(words(source.lower()))) for source in sources}) == 1
        for sources in several
    )


def test_word_orders_of_a_sentence_share_a_split():
    trained = {pair.target for pair in draw("train", 5000)}
    for split in ("dev", "test"):
        assert not trained & {pair.target for pair in draw(split, 150, seed=1)}


def test_reserved_names_occur_in_names_split_only():
    reserved = set(reserved_names())
    for split, count in (("train", 3000), ("dev", 100), ("test", 100)):
        for pair in draw(split, count):
            assert not reserved & set(words(pair.target))
    for pair in draw("names", 500):
        assert reserved & set(words(pair.target))


def test_names_split_covers_reserved_names():
    assert set(reserved_names()) <= {
        word for pair in draw("names", 2000) for word in words(pair.target)
    }


def test_latin_vocabulary_is_small(pairs):
    assert len({word for pair in pairs for word in words(pair.source)}) < 6000
    assert len({word for pair in pairs for word in words(pair.target)}) < 900


def test_frequency_adverbs_not_negated(pairs):
    often = {"semper", "saepe", "interdum", "numquam"}
    for pair in pairs:
        said = set(words(pair.source.lower()))
        assert not ("non" in said and often & said), pair


def test_sentences_cover_moods_and_tenses(pairs):
    starts = {words(pair.target)[0] for pair in pairs}
    assert {"The", "Who", "Whom", "What", "To", "Where", "Why", "When", "Surely"} <= starts
    assert {"Does", "Did", "Was", "Is", "I", "You", "We", "Many", "All", "Walk"} <= starts
    seen = {word for pair in pairs for word in words(pair.target)}
    assert {"walks", "walking", "walked", "sees", "saw", "never", "onto"} <= seen


def test_sampling_is_fast():
    stream = get_corpus("latin").pairs("train", seed=5)
    next(stream)
    start = time.process_time()
    for _ in islice(stream, 5000):
        pass
    # 20,000 in a second on a quiet machine; this bound only catches a change of order.
    assert time.process_time() - start < 2.5
