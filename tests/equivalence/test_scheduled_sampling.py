"""Scheduled sampling: ratio 0 with argmax is greedy search, ratio 1 is teacher forcing."""

import pytest
import torch

from heedful.config.base import type_of, types_in
from heedful.models.base import EncoderOutput
from heedful.models.recurrent.config import RecurrentDecoderConfig, WiringConfig
from heedful.models.scheduled_sampling import InputSampler
from heedful.search import greedy_search

BOS, EOS, VOCABULARY, MEMORY, MAX_LENGTH = 1, 2, 12, 6, 9
MARGINAL = {
    "wiring": {"type": "step-then-attend", "input_feeding": False},
    "attention": {"alignment": {"type": "monotonic-marginal"}, "readout": {"type": "per-position"}},
    "output_head": {"type": "marginal"},
}
DECODERS = {
    type_of(output): {"wiring": {"type": type_of(output)}} for output in types_in(WiringConfig)
}
DECODERS["deep-fusion"] |= {"cell": "lstmn"}
DECODERS["marginal over places"] = MARGINAL
all_decoders = pytest.mark.parametrize("name", DECODERS)


def build(name):
    sizes = {"embedding_size": 5, "hidden_size": 6, "num_layers": 2}
    config = RecurrentDecoderConfig.model_validate({**sizes, **DECODERS[name]})
    decoder = config.build(vocab_size=VOCABULARY, memory_size=MEMORY).double().eval()
    with torch.no_grad():
        for weight in decoder.parameters():
            weight.mul_(4)
        decoder.output_head.projection.bias[EOS] = 2  # some sequences end early
    return decoder


def sources():
    lengths = torch.tensor([5, 3, 1, 4])
    states, cell_states = (torch.randn(4, 5, MEMORY, dtype=torch.double) for _ in range(2))
    summary = torch.randn(4, MEMORY, dtype=torch.double)
    return EncoderOutput(states, lengths, summary, cell_states=cell_states)


@all_decoders
def test_zero_teacher_forcing_with_argmax_same_as_greedy_search(name):
    decoder, encoded = build(name), sources()
    wrong_tokens = torch.full((4, MAX_LENGTH + 1), 7)
    wrong_tokens[:, 0] = BOS
    with torch.no_grad():
        sampler = InputSampler(0.0, "argmax")
        output = decoder.forward_scheduled_sampling(wrong_tokens, encoded, sampler)
    limits = {"bos": BOS, "eos": EOS, "max_lengths": torch.full((4,), MAX_LENGTH)}
    for row, greedy in enumerate(greedy_search(decoder, decoder.initial_state(encoded), **limits)):
        count = len(greedy.tokens)
        predicted = output.log_probs[row].argmax(-1).tolist()
        assert predicted[:count] == list(greedy.tokens)
        assert count == MAX_LENGTH or predicted[count] == EOS
        weights = torch.as_tensor(greedy.weights, dtype=torch.double)[:count]
        torch.testing.assert_close(output.weights[row, :count], weights, rtol=0, atol=1e-6)


@all_decoders
def test_teacher_forcing_ratio_near_one_same_as_teacher_forcing(name):
    """Stepwise decoding equals parallel decoding, in value and gradient."""
    decoder, encoded = build(name), sources()
    tokens = torch.randint(3, VOCABULARY, (4, MAX_LENGTH))
    teacher_forced = decoder(tokens, encoded)
    nearly_teacher_forced = decoder.forward_scheduled_sampling(
        tokens, encoded, InputSampler(1 - 1e-12, "sample")
    )
    torch.testing.assert_close(nearly_teacher_forced[:2], teacher_forced[:2])
    weights = list(decoder.parameters())
    ours, theirs = (
        torch.autograd.grad(output.log_probs[..., 5].sum(), weights, allow_unused=True)
        for output in (nearly_teacher_forced, teacher_forced)
    )
    torch.testing.assert_close(ours, theirs)
