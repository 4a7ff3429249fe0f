"""A decoder that reads only what it says itself is greedy search; told all, it is as before."""

import pytest
import torch

from heedful.config.base import type_of, types_in
from heedful.models.base import EncoderOutput
from heedful.models.recurrent.decoder import RecurrentDecoderConfig, WiringConfig
from heedful.search import greedy_search

BEGIN, END, VOCABULARY, MEMORY, LONGEST = 1, 2, 12, 6, 9
MARGINAL = {
    "wiring": {"type": "step-then-attend", "input_feeding": False},
    "attention": {"alignment": {"type": "monotonic-marginal"}, "readout": {"type": "per-position"}},
    "output_head": {"type": "marginal"},
}
DECODERS = {type_of(each): {"wiring": {"type": type_of(each)}} for each in types_in(WiringConfig)}
DECODERS["deep-fusion"] |= {"cell": "lstmn"}
DECODERS["marginal over places"] = MARGINAL
each_decoder = pytest.mark.parametrize("name", DECODERS)


def build(name):
    sizes = {"embedding_size": 5, "hidden_size": 6, "num_layers": 2}
    config = RecurrentDecoderConfig.model_validate({**sizes, **DECODERS[name]})
    decoder = config.build(vocab_size=VOCABULARY, memory_size=MEMORY).double().eval()
    with torch.no_grad():
        for weight in decoder.parameters():
            weight.mul_(4)
        decoder.output_head.projection.bias[END] = 2  # some end early
    return decoder


def sources():
    lengths = torch.tensor([5, 3, 1, 4])
    states, memories = (torch.randn(4, 5, MEMORY, dtype=torch.double) for _ in range(2))
    summary = torch.randn(4, MEMORY, dtype=torch.double)
    return EncoderOutput(states, lengths, summary, cell_states=memories)


@each_decoder
def test_with_no_teacher_the_likeliest_tokens_are_those_of_greedy_search(name):
    decoder, encoded = build(name), sources()
    wrong = torch.full((4, LONGEST + 1), 7)
    wrong[:, 0] = BEGIN
    with torch.no_grad():
        found = decoder.forward_scheduled_sampling(wrong, encoded, 0.0, "argmax")
    limits = {"bos": BEGIN, "eos": END, "max_lengths": torch.full((4,), LONGEST)}
    for row, greedy in enumerate(greedy_search(decoder, decoder.initial_state(encoded), **limits)):
        count = len(greedy.tokens)
        said = found.log_probs[row].argmax(-1).tolist()
        assert said[:count] == list(greedy.tokens)
        assert count == LONGEST or said[count] == END
        seen = torch.as_tensor(greedy.weights, dtype=torch.double)[:count]
        torch.testing.assert_close(found.weights[row, :count], seen, rtol=0, atol=1e-6)


@each_decoder
def test_a_teacher_who_is_nearly_always_there_gives_what_one_who_always_is_gives(name):
    """The path step by step is the path at once, in value and in gradient."""
    decoder, encoded = build(name), sources()
    tokens = torch.randint(3, VOCABULARY, (4, LONGEST))
    always = decoder(tokens, encoded)
    nearly = decoder.forward_scheduled_sampling(tokens, encoded, 1 - 1e-12, "sample")
    torch.testing.assert_close(nearly[:2], always[:2])
    weights = list(decoder.parameters())
    ours, theirs = (
        torch.autograd.grad(each.log_probs[..., 5].sum(), weights, allow_unused=True)
        for each in (nearly, always)
    )
    torch.testing.assert_close(ours, theirs)
