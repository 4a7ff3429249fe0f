"""Wirings without attention, by slow loops over their papers' equations."""

import pytest
import torch

from heedful.models.base import EncoderOutput
from heedful.models.recurrent.decoder import RecurrentDecoderConfig
from heedful.search import greedy_search

HIDDEN, EMBEDDED, MEMORY = 4, 3, 5
each_kind = pytest.mark.parametrize("kind", ["final-state", "constant-context"])


def build(kind, **settings):
    sizes = {"embedding_size": EMBEDDED, "hidden_size": HIDDEN, "wiring": {"type": kind}}
    config = RecurrentDecoderConfig.model_validate({**sizes, **settings})
    return config.build(vocab_size=7, memory_size=MEMORY)


def source():
    return EncoderOutput(torch.randn(2, 4, MEMORY), torch.tensor([4, 2]), torch.randn(2, MEMORY))


def test_the_final_state_is_all_that_sutskevers_decoder_knows():
    decoder = build("final-state", cell="lstm", num_layers=2, pre_output={"type": "state-only"})
    encoded, tokens = source(), torch.randint(3, 7, (2, 3))
    found = decoder(tokens, encoded)
    states = [(hidden, torch.zeros_like(hidden)) for hidden in decoder.bridge(encoded)]
    for time in range(3):
        below = decoder.embedding(tokens[:, time])
        for number, cell in enumerate(decoder.wiring.cells.cells):
            first = tuple(part[None] for part in states[number])
            _, after = cell.layer(below[:, None], first)
            states[number] = tuple(part[0] for part in after)
            below = states[number][0]
        wanted = decoder.output_head.projection(below).log_softmax(-1)
        torch.testing.assert_close(found.log_probs[:, time], wanted)


def test_the_context_is_there_at_every_step_of_chos_decoder():
    """h_t = g(y_{t-1}, h_{t-1}, c), and maxout over O_h h_t + O_y y_{t-1} + O_c c."""
    output = {"type": "maxout", "size": 3}
    decoder = build("constant-context", cell={"type": "gru", "reset": "before"}, pre_output=output)
    encoded, tokens = source(), torch.randint(3, 7, (2, 3))
    found = decoder(tokens, encoded)
    (h,), c = decoder.bridge(encoded), encoded.summary
    cell, combine = decoder.wiring.cells.cells[0], decoder.wiring.pre_output.projection
    O_h, O_y, O_c = combine.weight.split([HIDDEN, EMBEDDED, MEMORY], dim=1)
    for time in range(3):
        y = decoder.embedding(tokens[:, time])
        read = torch.cat([y, c], -1)
        r, z = (cell.input_to_gates(read) + cell.hidden_to_gates(h)).sigmoid().chunk(2, -1)
        new = (cell.input_to_candidate(read) + cell.hidden_to_candidate(r * h)).tanh()
        h = (1 - z) * h + z * new
        pairs = (h @ O_h.T + y @ O_y.T + c @ O_c.T + combine.bias).view(2, 3, 2)
        features = torch.maximum(pairs[..., 0], pairs[..., 1])
        wanted = decoder.output_head.projection(features).log_softmax(-1)
        torch.testing.assert_close(found.log_probs[:, time], wanted)


@each_kind
def test_it_looks_nowhere_and_nothing_is_known_of_it(kind):
    decoder, encoded = build(kind), source()
    found = decoder(torch.randint(3, 7, (2, 3)), encoded)
    assert found.weights.shape == (2, 3, 4)
    assert (found.weights == 0).all()
    assert found.attention_records == ()
    assert decoder.step(torch.tensor([1, 1]), decoder.initial_state(encoded)).weights.shape == (
        2,
        4,
    )


@each_kind
def test_what_lies_between_first_state_and_summary_is_never_read(kind):
    decoder, encoded, tokens = build(kind), source(), torch.randint(3, 7, (2, 3))
    broken = encoded._replace(states=torch.full_like(encoded.states, float("nan")))
    torch.testing.assert_close(decoder(tokens, broken), decoder(tokens, encoded))


@each_kind
def test_a_search_finds_its_way_without_attention(kind):
    decoder = build(kind)
    limits = {"bos": 1, "eos": 2, "max_lengths": torch.tensor([5, 3])}
    for found in greedy_search(decoder, decoder.initial_state(source()), **limits):
        assert all(sum(row) == 0 for row in torch.as_tensor(found.weights).tolist())


def test_only_the_constant_context_still_hears_a_source_that_the_first_state_has_forgotten():
    first, second = source(), source()
    tokens = torch.randint(3, 7, (2, 3))
    decoder = build("constant-context", bridge={"type": "zeros"})
    assert not torch.allclose(decoder(tokens, first).log_probs, decoder(tokens, second).log_probs)
