"""Deep fusion against a slow loop from the paper, one row and one place at a time."""

import pytest
import torch

from heedful.attention.additive_scores import AdditiveScoreConfig, ContextFeatureConfig
from heedful.attention.config import AttentionConfig
from heedful.attention.multi_head import MultiHeadConfig
from heedful.errors import ConfigError
from heedful.layers.rnn_cells import GRUCellConfig
from heedful.layers.self_attentive_cells import DeepFusionLSTMNCell, LSTMNCell, LSTMNCellConfig
from heedful.models.base import EncoderOutput
from heedful.models.recurrent.deep_fusion import DeepFusionConfig
from heedful.models.recurrent.pre_output import StateOnlyPreOutputConfig
from heedful.models.recurrent.wiring import RecurrentDecoderConfigBase
from heedful.pytree import select_rows

E, D, A, S, STEPS = 3, 4, 5, 6, 4
LENGTHS = torch.tensor([6, 2, 4])
ROWS = len(LENGTHS)


def parts(**settings):
    attention = AttentionConfig(score=AdditiveScoreConfig(hidden_size=A))
    usual = {"cell": LSTMNCellConfig(score_size=A), "attention": attention}
    sizes = {"embedding_size": E, "hidden_size": D, "pre_output": StateOnlyPreOutputConfig()}
    return RecurrentDecoderConfigBase(**sizes, **usual | settings)


def make(**settings):
    wiring = DeepFusionConfig().build(parts(**settings), memory_size=D).double()
    with torch.no_grad():
        for weight in wiring.parameters():
            weight.mul_(3)  # so that weights are far from even
    return wiring


def random(*shape):
    return torch.randn(*shape, dtype=torch.double)


def source():
    """States and memory cells of an encoder; what lies past the end is anything."""
    return EncoderOutput(
        random(ROWS, S, D), LENGTHS, random(ROWS, D), cell_states=random(ROWS, S, D)
    )


def run(wiring, encoded, tokens, hidden):
    memory = wiring.build_memory(encoded)
    state, found = wiring.initial_state(wiring.cells.initial_state(hidden), memory, encoded), []
    for column in tokens.unbind(1):
        found.append(wiring(column, state, memory))
        state = found[-1].state
    return found


def mean(scores, *vectors):
    """softmax(scores), and means under it."""
    powers = [torch.exp(score) for score in scores]
    weights = torch.stack([power / sum(powers) for power in powers])
    return weights, *(
        sum(weight * each for weight, each in zip(weights, kind, strict=True)) for kind in vectors
    )


def v_tanh(attention):
    """v . tanh(W_x x + W_c c + W_h h)."""
    score = attention.score
    W_x, W_c = score.query_projection.weight.split([E, D], dim=1)
    W_h, v = score.key_projection.weight, score.score_vector.weight[0]
    return lambda x, c, h: v @ torch.tanh(W_x @ x + W_c @ c + W_h @ h)


def test_memory_cells_of_the_source_are_added_to_those_of_the_target():
    wiring, encoded = make(), source()
    cell = wiring.cells.cells[0]
    intra, inter = v_tanh(cell.intra_attention.attention), v_tanh(wiring.attention)
    W, U, b = cell.input_to_hidden.weight, cell.context_to_hidden.weight, cell.input_to_hidden.bias
    R, b_r = wiring.gate.weight, wiring.gate.bias
    tokens, hidden = random(ROWS, STEPS, E), random(ROWS, D)
    found = run(wiring, encoded, tokens, [hidden])
    for row, length in enumerate(LENGTHS):
        g, a = encoded.states[row, :length], encoded.cell_states[row, :length]
        taken, s, recalled = (
            torch.zeros_like(hidden[row]),
            hidden[row],
            torch.zeros_like(hidden[row]),
        )
        states, memories = [], []
        for t, x in enumerate(tokens[row]):
            if states:
                scores = [intra(x, s, each) for each in states]
                _, s, recalled = mean(scores, states, memories)
            weights, taken, brought = mean([inter(x, taken, each) for each in g], g, a)
            r = torch.sigmoid(R @ torch.cat([taken, x]) + b_r)
            i, f, new, o = (W @ x + U @ s + b).chunk(4)
            c = r * brought + f.sigmoid() * recalled + i.sigmoid() * new.tanh()
            states.append(o.sigmoid() * c.tanh())
            memories.append(c)
            torch.testing.assert_close(found[t].pre_output_input[row], states[-1])
            torch.testing.assert_close(found[t].weights[row, 0, :length], weights)
            assert not found[t].weights[row, 0, length:].any()


def test_what_lies_past_the_end_of_a_source_has_no_influence():
    wiring, encoded = make(), source()
    tokens, hidden = random(ROWS, STEPS, E), [random(ROWS, D)]
    past_the_end = torch.arange(S) >= LENGTHS[:, None]
    spoiled = encoded._replace(
        states=encoded.states.masked_fill(past_the_end[..., None], 1e3),
        cell_states=encoded.cell_states.masked_fill(past_the_end[..., None], 1e3),
    )
    wanted, found = (run(wiring, each, tokens, hidden) for each in (encoded, spoiled))
    for pair in zip(found, wanted, strict=True):
        torch.testing.assert_close(*(wired.pre_output_input for wired in pair))


def test_rows_can_be_chosen_as_a_beam_does():
    wiring, encoded, rows = make(num_layers=2), source(), torch.tensor([2, 2, 0, 1])
    memory = wiring.build_memory(encoded)
    tokens, hidden = random(ROWS, STEPS, E), [random(ROWS, D) for _ in range(2)]
    state = run(wiring, encoded, tokens, hidden)[-1].state
    more = random(ROWS, E)
    chosen = wiring(more[rows], select_rows(state, rows), select_rows(memory, rows))
    torch.testing.assert_close(
        chosen.pre_output_input, wiring(more, state, memory).pre_output_input[rows]
    )


def test_layers_above_the_bottom_are_plain():
    kinds = [type(cell) for cell in make(num_layers=3).cells.cells]
    assert kinds == [DeepFusionLSTMNCell, LSTMNCell, LSTMNCell]


def test_every_weight_learns_and_so_do_states_and_memory_cells():
    wiring, encoded = make(), source()
    states, memories = encoded.states.requires_grad_(), encoded.cell_states.requires_grad_()
    found = run(wiring, encoded, random(ROWS, STEPS, E), [random(ROWS, D)])
    sum(wired.pre_output_input.square().sum() for wired in found).backward()
    assert [name for name, weight in wiring.named_parameters() if not weight.grad.any()] == []
    within = torch.arange(S) < LENGTHS[:, None]
    for leaf in (states, memories):
        assert leaf.grad[within].all()
        assert not leaf.grad[~within].any()


def test_gradients_are_those_of_finite_differences():
    wiring, encoded = make(), source()
    tokens = random(ROWS, 2, E).requires_grad_()
    leaves = (encoded.states.requires_grad_(), encoded.cell_states.requires_grad_(), tokens)

    def told(states, memories, tokens):
        seen = encoded._replace(states=states, cell_states=memories)
        return run(wiring, seen, tokens, [encoded.summary])[-1].pre_output_input

    assert torch.autograd.gradcheck(told, leaves, fast_mode=True)


def test_a_score_may_look_back_at_the_states_taken():
    score = AdditiveScoreConfig(hidden_size=A, features=(ContextFeatureConfig(),))
    wiring = make(attention=AttentionConfig(score=score))
    plain = make()
    plain.load_state_dict(wiring.state_dict(), strict=False)
    name = "attention.score.features.0.projection.weight"
    with torch.no_grad():  # W_x x + W_c c + F c = W_x x + (W_c + F) c
        plain.attention.score.query_projection.weight[:, E:] += wiring.get_parameter(name)
    encoded, tokens, hidden = source(), random(ROWS, STEPS, E), [random(ROWS, D)]
    for pair in zip(*(run(each, encoded, tokens, hidden) for each in (wiring, plain)), strict=True):
        torch.testing.assert_close(*(wired.pre_output_input for wired in pair))


def refusal(memory_size=D, **settings):
    with pytest.raises(ConfigError) as caught:
        DeepFusionConfig().build(parts(**settings), memory_size=memory_size)
    return str(caught.value)


def test_a_cell_that_lets_no_memory_in_is_refused():
    assert refusal(cell=GRUCellConfig()) == (
        "cell.type: under 'deep-fusion' memory is added within the cell, but 'gru' lets none in\n"
        "  choose 'lstmn', or another wiring"
    )


def test_memory_cells_of_another_width_are_refused():
    assert refusal(memory_size=6) == (
        "hidden_size: under 'deep-fusion' memory cells of both sides are added, but the encoder's "
        "are 6 wide and the decoder's 4\n  set it to 6"
    )


def test_heads_are_refused():
    assert refusal(attention=AttentionConfig(multi_head=MultiHeadConfig(num_heads=2))) == (
        "attention.multi_head: under 'deep-fusion' states and memory cells are taken as they are, but "
        "heads make others of them\n  leave the section out, or choose another wiring"
    )


def test_an_encoder_without_memory_cells_is_refused():
    with pytest.raises(ConfigError) as caught:
        make().build_memory(source()._replace(cell_states=None))
    assert str(caught.value) == (
        "encoder.cell.type: under 'deep-fusion' the decoder takes memory cells from the encoder, "
        "but this one writes none down\n  choose 'lstmn' or 'self-attentive-lstm'"
    )
