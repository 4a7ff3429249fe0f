"""Nothing leaks from the future: what is said at a step has no slope to words after it.

The slope is exactly zero, not small: a mask that lets a little through would be actual here. What
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
def test_log_probs_have_no_gradient_to_later_tokens(name):
    model, examples = build(name), batch(store(), [5, 6])
    seen = words_of_the_target(model)
    said = model(examples, need_weights=False).log_probs
    vectors = seen[-1]  # where both sides share an embedding, the source was looked up before
    assert vectors.shape[:2] == examples.decoder_inputs.shape
    # Any step will do; another for every system.
    step = zlib.crc32(name.encode()) % (examples.decoder_inputs.size(1) - 1)
    grad_outputs = torch.randn_like(said[:, step])
    (actual,) = torch.autograd.grad(said[:, step], vectors, grad_outputs)
    assert (actual[:, step + 1 :] == 0).all()
    assert (actual[:, step] != 0).any(dim=-1).all()


def test_a_causality_leak_is_detected():
    """Two attentions that see all of the target: the same test, turned round."""
    model, examples = build("transformer"), batch(store(), [5, 6])
    for layer in model.decoder.stack.layers:
        layer.self_attention.visibility = lambda seen, own: seen >= 0 * own
    seen = words_of_the_target(model)
    said = model(examples, need_weights=False).log_probs
    (actual,) = torch.autograd.grad(said[:, 2].square().sum(), seen[-1])
    assert (actual[:, 3:] != 0).any()
