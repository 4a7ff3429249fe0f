"""On MPS, which has no float64, models, search and sampling return what they return on a CPU."""

import pytest
import torch

from heedful.pytree import map_tensors
from heedful.search.penalties import NoLengthPenaltyConfig
from heedful.search.sampling import SamplingOptions
from tests.catalogue import (
    SYSTEMS,
    TAGGERS,
    batch,
    build,
    quick_or_wide,
    store,
    tagged_store,
)
from tests.fake_mps import FakeMPS, move, move_model
from tests.shape_checking import unchecked


@pytest.mark.parametrize("name", quick_or_wide(SYSTEMS | TAGGERS))
def test_mps_same_as_cpu(name):
    corpus = tagged_store() if name in TAGGERS else store()
    model, examples = build(name).float(), batch(corpus, [0, 3])
    with unchecked(), torch.no_grad():
        on_cpu = model(examples).log_probs
        with FakeMPS():
            on_mps = move_model(model)(map_tensors(move, examples)).log_probs
            assert on_mps.device.type == "mps"
            on_mps = on_mps.cpu()
    torch.testing.assert_close(on_mps, on_cpu)


@pytest.mark.parametrize("name", ["transformer", "decoder only"])
def test_search_and_sampling_match_cpu(name):
    name = next(each for each in SYSTEMS if each.startswith(name))
    sources = batch(store(), [0, 3]).sources

    def decode(model, sources):
        max_lengths = 2 * sources.lengths
        penalty = NoLengthPenaltyConfig().build()
        found = model.search(sources, beam_size=3, max_lengths=max_lengths, length_penalty=penalty)
        options = SamplingOptions(temperature=0.7, top_k=4, forbidden_tokens=(1,))
        drawn = model.sample(sources, 2, max_lengths=max_lengths, options=options, seed=1)
        return [[output.tokens for output in outputs] for outputs in (*found, *drawn)]

    with unchecked():
        on_cpu = decode(build(name).float(), sources)
        with FakeMPS():
            on_mps = decode(move_model(build(name).float()), map_tensors(move, sources))
    assert on_mps == on_cpu
