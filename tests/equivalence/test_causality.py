"""Log-probabilities of a step have no gradient to later target tokens.

The gradient is exactly zero, not small. It is nonzero for the token of the step itself, or the test
could not fail.
"""

import zlib

import torch

from heedful.models.prefix_lm import PrefixLanguageModel
from tests.catalogue import batch, build, each_system, store


def record_target_embeddings(model):
    """Return a list to which every embedding of target tokens is appended."""
    records = []
    is_prefix_lm = isinstance(model, PrefixLanguageModel)
    embedding = model.target_embedding if is_prefix_lm else model.decoder.embedding
    embedding.register_forward_hook(lambda _, __, vectors: records.append(vectors))
    return records


@each_system
def test_log_probs_have_no_gradient_to_later_tokens(name):
    model, examples = build(name), batch(store(), [5, 6])
    records = record_target_embeddings(model)
    log_probs = model(examples).log_probs
    embedded = records[-1]  # a shared embedding has embedded the source before
    assert embedded.shape[:2] == examples.decoder_inputs.shape
    # An arbitrary step, another for every system.
    step = zlib.crc32(name.encode()) % (examples.decoder_inputs.size(1) - 1)
    grad_outputs = torch.randn_like(log_probs[:, step])
    (gradient,) = torch.autograd.grad(log_probs[:, step], embedded, grad_outputs)
    assert (gradient[:, step + 1 :] == 0).all()
    assert (gradient[:, step] != 0).any(dim=-1).all()


def test_causality_leak_is_detected():
    """The same test with self-attention that sees the whole target."""
    model, examples = build("transformer"), batch(store(), [5, 6])
    for layer in model.decoder.stack.layers:
        layer.self_attention.build_mask = lambda num_keys, queries: torch.ones(
            *queries.shape, num_keys, dtype=torch.bool
        )
    records = record_target_embeddings(model)
    log_probs = model(examples).log_probs
    (gradient,) = torch.autograd.grad(log_probs[:, 2].square().sum(), records[-1])
    assert (gradient[:, 3:] != 0).any()
