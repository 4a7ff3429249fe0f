"""The same sentence gives the same output alone, in any batch, order or padding.

Asked of every built-in recipe as it is decoded: greedily and by its own beam and length penalty;
where it reads running text, of how likely it finds texts and of what it draws after beginnings.
Sizes are made small and weights drawn anew, so that the source matters to every word that is said.
Outputs are compared at double precision, where rounding does not decide between two words that are
all but equally likely; that single precision gives the same scores is asked of given outputs.
"""

from typing import Any

import pytest
import torch
from pydantic import TypeAdapter
from torch.nn.functional import pad

from heedful.data.batching import SourceBatch, collate_sources
from heedful.data.token_stream import LMBatch
from heedful.models.base import Seq2SeqModel
from heedful.models.language_model import BoundedContextModel
from heedful.recipes import load_recipe, recipe_names
from heedful.recipes.recipe import ModelConfig
from heedful.search.sampling import SamplingOptions, random_generators, sampling_loop
from heedful.tokenization.vocabulary import PAD
from tests.shape_checking import unchecked

VOCABULARY = 13
LENGTHS = (7, 1, 11)
MOST = {  # of settings that say how large a model is: small, and past every window and block
    **dict.fromkeys(("size", "embedding_size", "hidden_size", "score_size"), 8),
    **{"num_layers": 4, "num_heads": 2, "num_experts": 4, "num_sets": 1, "reach": 2},
}
OF_TEXT = [name for name in recipe_names() if load_recipe(name).task.name != "translation"]
OF_PAIRS = [name for name in recipe_names() if name not in OF_TEXT]
WRITING = [name for name in OF_TEXT if load_recipe(name).model.type == "language-model"]


def asked_widely(names):
    """Ask quickly of a small form, where there is one, and of the others in `factory test-wide`."""
    families = {name.removesuffix("-small") for name in recipe_names() if name.endswith("-small")}
    is_told = [name.removesuffix("-multi30k") in families for name in names]
    return [
        pytest.param(name, marks=pytest.mark.wide) if told else name
        for name, told in zip(names, is_told, strict=True)
    ]


each_recipe_of_pairs = pytest.mark.parametrize("name", asked_widely(OF_PAIRS))
each_recipe_of_text = pytest.mark.parametrize("name", asked_widely(OF_TEXT))


@pytest.fixture(autouse=True)
def without_shape_checks():
    """Searches take hundreds of steps; shapes are checked where models are tested."""
    with unchecked():
        yield


def shrunk(settings: Any, key: str = "") -> Any:
    """Make every size in a tree of settings small."""
    if isinstance(settings, dict):
        return {name: shrunk(value, name) for name, value in settings.items()}
    if isinstance(settings, list):
        most = MOST["num_layers"] if key == "feedforwards" else len(settings)
        return [shrunk(value, key) for value in settings[:most]]
    is_number = isinstance(settings, int) and not isinstance(settings, bool)
    return min(settings, MOST[key]) if is_number and key in MOST else settings


def build(name: str) -> Any:
    """A recipe's model, made small, with weights that let every word count."""
    torch.manual_seed(1)
    settings = shrunk(load_recipe(name).model.model_dump(mode="json", exclude_unset=True))
    config = TypeAdapter(ModelConfig).validate_python(settings)
    model = config.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:  # biases that large would say the same of every text
                weight.normal_(std=2 * weight[0].numel() ** -0.5)
    return model.eval()


def texts():
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(4, VOCABULARY, (size,), generator=generator).tolist() for size in LENGTHS]


def wider(sources: SourceBatch, by: int = 6) -> SourceBatch:
    return SourceBatch(pad(sources.tokens, (0, by), value=PAD), sources.lengths)


def search(model: Seq2SeqModel, sources: SourceBatch, decoding: Any, *, width: int):
    return model.search(
        sources,
        beam_size=width,
        max_lengths=sources.lengths // 3 + 2,
        length_penalty=decoding.length_penalty.build(),
    )


def ways_to_ask(ask):
    """Ask about all texts, then in another order and with more padding; answers in one order."""
    sequences, order = texts(), (2, 0, 1)
    yield ask(collate_sources(sequences))
    actual = ask(wider(collate_sources([sequences[row] for row in order])))
    yield [actual[order.index(row)] for row in range(len(order))]


def assert_same(actual, expected, *, tolerance):
    assert actual.tokens == expected.tokens
    assert actual.score == pytest.approx(expected.score, rel=tolerance)
    assert actual.log_probs == pytest.approx(expected.log_probs, rel=tolerance, abs=tolerance)
    for one, other in (
        (actual.weights, expected.weights),
        (actual.eos_weights, expected.eos_weights),
    ):
        places = other.shape[-1]
        assert one[..., :places] == pytest.approx(other, abs=1e-5)
        assert not one[..., places:].any()


@each_recipe_of_pairs
@pytest.mark.parametrize("is_greedy", [True, False], ids=["greedy", "beam"])
def test_search_does_not_depend_on_the_batch(name, is_greedy):
    model, decoding = build(name).double(), load_recipe(name).decoding
    width = 1 if is_greedy else decoding.beam_size
    alone = [search(model, collate_sources([text]), decoding, width=width)[0] for text in texts()]
    for together in ways_to_ask(lambda sources: search(model, sources, decoding, width=width)):
        for one, company in zip(alone, together, strict=True):
            assert len(one) == len(company) == width
            for expected, actual in zip(one, company, strict=True):
                assert_same(actual, expected, tolerance=1e-9)


@each_recipe_of_pairs
def test_scores_of_given_outputs_do_not_depend_on_the_batch_in_float32(name):
    model, sequences = build(name).float(), texts()
    outputs = [text[::-1][:4] for text in sequences]
    alone = [
        model.score(collate_sources([text]), [output])[0]
        for text, output in zip(sequences, outputs, strict=True)
    ]

    def ask(sources):
        rows = [LENGTHS.index(length - 1) for length in sources.lengths.tolist()]
        return model.score(sources, [outputs[row] for row in rows])

    for together in ways_to_ask(ask):
        for expected, actual in zip(alone, together, strict=True):
            assert_same(actual, expected, tolerance=1e-4)


@each_recipe_of_text
@pytest.mark.parametrize("precision", [torch.float64, torch.float32], ids=["double", "single"])
def test_text_probabilities_do_not_depend_on_the_batch(name, precision):
    model = build(name).to(precision)
    tolerance = 1e-9 if precision == torch.float64 else 1e-4

    def ask(sources):
        with torch.no_grad():
            said = model(LMBatch(sources.tokens, sources.tokens), need_weights=False).log_probs
        return [row[:length] for row, length in zip(said, sources.lengths.tolist(), strict=True)]

    alone = [ask(collate_sources([text]))[0] for text in texts()]
    for together in ways_to_ask(ask):
        for expected, actual in zip(alone, together, strict=True):
            torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", WRITING)
def test_continuations_do_not_depend_on_the_batch(name):
    """Beginnings are as long as one another, and are gone on from past the end of a context."""
    bounded = BoundedContextModel(build(name).double(), context_length=6)
    beginnings = torch.randint(4, VOCABULARY, (3, 4), generator=torch.Generator().manual_seed(3))

    def go_on(rows):
        read = beginnings[rows]
        drawn = sampling_loop(
            bounded,
            bounded.encode_prompt(read[:, :-1]),
            bos=read[:, -1],
            eos=None,
            length_limits=torch.full((len(rows),), 10),
            options=SamplingOptions(),
            generators=random_generators(0, rows),
        )
        told = [(draw.tokens, draw.step.log_probs) for draw in drawn]
        tokens, log_probs = (torch.stack(each, dim=1) for each in zip(*told, strict=True))
        return tokens, log_probs

    together = go_on([2, 0, 1])
    for place, row in enumerate([2, 0, 1]):
        for actual, expected in zip(together, go_on([row]), strict=True):
            torch.testing.assert_close(actual[place], expected[0], rtol=1e-9, atol=1e-9)
