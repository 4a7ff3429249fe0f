"""Nothing leaks from the future: what is said at a step has no slope to words after it.

The slope is exactly zero, not small: a mask that lets a little through would be found here. What
is said does hang on the word of the step itself, or the test could not fail.
"""

import zlib

import pytest
import torch

from heedful.models.prefix_lm import PrefixLanguageModel
from tests.catalogue import SYSTEMS, batch, build, store

each_system = pytest.mark.parametrize("name", SYSTEMS)


def words_of_the_target(model):
    """A list that fills with the vectors of target words as the model looks them up."""
    seen = []
    is_one = isinstance(model, PrefixLanguageModel)
    embedding = model.target_embedding if is_one else model.decoder.embedding
    embedding.register_forward_hook(lambda _, __, vectors: seen.append(vectors))
    return seen


@each_system
def test_what_is_said_has_no_slope_to_later_words(name):
    model, examples = build(name), batch(store(), [5, 6])
    seen = words_of_the_target(model)
    said = model(examples, need_weights=False).log_probs
    vectors = seen[-1]  # where both sides share an embedding, the source was looked up before
    assert vectors.shape[:2] == examples.decoder_inputs.shape
    # Any step will do; another for every system.
    step = zlib.crc32(name.encode()) % (examples.decoder_inputs.size(1) - 1)
    slopes = torch.randn_like(said[:, step])
    (found,) = torch.autograd.grad(said[:, step], vectors, slopes)
    assert (found[:, step + 1 :] == 0).all()
    assert (found[:, step] != 0).any(dim=-1).all()


def test_a_leak_would_be_noticed():
    """Two attentions that see all of the target: the same test, turned round."""
    model, examples = build("transformer"), batch(store(), [5, 6])
    for layer in model.decoder.stack.layers:
        layer.self_attention.visibility = lambda seen, own: seen >= 0 * own
    seen = words_of_the_target(model)
    said = model(examples, need_weights=False).log_probs
    (found,) = torch.autograd.grad(said[:, 2].square().sum(), seen[-1])
    assert (found[:, 3:] != 0).any()
