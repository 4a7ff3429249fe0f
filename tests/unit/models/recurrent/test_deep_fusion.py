"""Deep fusion matches an explicit loop over the equations of the paper."""

import pytest
import torch

from heedful.attention.additive_scores import AdditiveScoreConfig, ContextFeatureConfig
from heedful.attention.config import AttentionConfig
from heedful.attention.multi_head import MultiHeadConfig
from heedful.errors import ConfigError
from heedful.layers.rnn_cell_config import GRUCellConfig
from heedful.layers.self_attentive_cells import DeepFusionLSTMNCell, LSTMNCell, LSTMNCellConfig
from heedful.models.base import EncoderOutput
from heedful.models.encoder_decoder import EncoderDecoderConfig
from heedful.models.recurrent.adaptive import DeepFusionConfig
from heedful.models.recurrent.decoder_parts import (
    RecurrentDecoderConfigBase,
    StateOnlyPreOutputConfig,
)

E, D, A, S, STEPS = 3, 4, 5, 6, 4
LENGTHS = torch.tensor([6, 2, 4])
ROWS = len(LENGTHS)


def parts(**settings):
    attention = AttentionConfig(score=AdditiveScoreConfig(hidden_size=A))
    defaults = {"cell": LSTMNCellConfig(score_size=A), "attention": attention}
    sizes = {"embedding_size": E, "hidden_size": D, "pre_output": StateOnlyPreOutputConfig()}
    return RecurrentDecoderConfigBase(**sizes, **defaults | settings)


def make(**settings):
    wiring = DeepFusionConfig().build(parts(**settings), memory_size=D).double()
    with torch.no_grad():
        for weight in wiring.parameters():
            weight.mul_(3)  # attention far from uniform
    return wiring


def random(*shape):
    return torch.randn(*shape, dtype=torch.double)


def source():
    """States and cell states of an encoder; random at padding."""
    return EncoderOutput(
        random(ROWS, S, D), LENGTHS, random(ROWS, D), cell_states=random(ROWS, S, D)
    )


def run(wiring, encoded, tokens, hidden):
    memory = wiring.build_memory(encoded)
    cells, outputs = wiring.cells.initial_state(hidden), []
    state = wiring.initial_state(cells, memory, encoded.summary)
    for column in tokens.unbind(1):
        outputs.append(wiring(column, state, memory))
        state = outputs[-1].state
    return outputs


def mean(scores, *vectors):
    """softmax(scores), and the weighted means of the vectors."""
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


def test_deep_fusion_same_as_equations():
    wiring, encoded = make(), source()
    cell = wiring.cells.cells[0]
    intra, inter = v_tanh(cell.intra_attention.attention), v_tanh(wiring.attention)
    W, U, b = cell.input_to_hidden.weight, cell.context_to_hidden.weight, cell.input_to_hidden.bias
    R, b_r = wiring.gate.weight, wiring.gate.bias
    tokens, hidden = random(ROWS, STEPS, E), random(ROWS, D)
    outputs = run(wiring, encoded, tokens, [hidden])
    for row, length in enumerate(LENGTHS):
        g, a = encoded.states[row, :length], encoded.cell_states[row, :length]
        context, s, cell_context = (
            torch.zeros_like(hidden[row]),
            hidden[row],
            torch.zeros_like(hidden[row]),
        )
        states, cell_states = [], []
        for t, x in enumerate(tokens[row]):
            if states:
                scores = [intra(x, s, each) for each in states]
                _, s, cell_context = mean(scores, states, cell_states)
            weights, context, source_cell_context = mean(
                [inter(x, context, each) for each in g], g, a
            )
            r = torch.sigmoid(R @ torch.cat([context, x]) + b_r)
            i, f, new, o = (W @ x + U @ s + b).chunk(4)
            c = r * source_cell_context + f.sigmoid() * cell_context + i.sigmoid() * new.tanh()
            states.append(o.sigmoid() * c.tanh())
            cell_states.append(c)
            torch.testing.assert_close(outputs[t].pre_output_input[row], states[-1])
            torch.testing.assert_close(outputs[t].weights[row, 0, :length], weights)
            assert not outputs[t].weights[row, 0, length:].any()


def test_only_bottom_cell_is_fused():
    kinds = [type(cell) for cell in make(num_layers=3).cells.cells]
    assert kinds == [DeepFusionLSTMNCell, LSTMNCell, LSTMNCell]


def test_gradients_match_finite_differences():
    wiring, encoded = make(), source()
    tokens = random(ROWS, 2, E).requires_grad_()
    leaves = (encoded.states.requires_grad_(), encoded.cell_states.requires_grad_(), tokens)

    def last_output(states, cell_states, tokens):
        changed = encoded._replace(states=states, cell_states=cell_states)
        return run(wiring, changed, tokens, [encoded.summary])[-1].pre_output_input

    assert torch.autograd.gradcheck(last_output, leaves, fast_mode=True)


def test_score_can_use_last_context():
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


@pytest.mark.parametrize(
    "encoder", [{"cell": {"type": "lstm"}}, {"type": "transformer"}], ids=["lstm", "transformer"]
)
def test_encoder_without_cell_states_raises_when_the_model_is_built(encoder):
    decoder = {"cell": {"type": "lstmn"}, "wiring": {"type": "deep-fusion"}}
    config = EncoderDecoderConfig.model_validate({"encoder": encoder, "decoder": decoder})
    with pytest.raises(ConfigError) as caught:
        config.build(source_vocab_size=9, target_vocab_size=9)
    assert str(caught.value) == (
        "encoder.cell.type: wiring 'deep-fusion' needs cell states, "
        "but this encoder returns none\n  choose 'lstmn' or 'self-attentive-lstm'"
    )


@pytest.mark.parametrize(
    ("settings", "memory_size", "message"),
    [
        (
            {"cell": GRUCellConfig()},
            D,
            "cell.type: wiring 'deep-fusion' needs 'lstmn' cells, but this is 'gru'\n"
            "  choose 'lstmn', or another wiring",
        ),
        (
            {},
            6,
            "hidden_size: wiring 'deep-fusion' needs the encoder's size 6, but this is 4\n"
            "  set it to 6",
        ),
        (
            {"attention": AttentionConfig(multi_head=MultiHeadConfig(num_heads=2))},
            D,
            "attention.multi_head: wiring 'deep-fusion' adds cell states as they are, but heads "
            "project them\n  remove the section, or choose another wiring",
        ),
    ],
)
def test_settings_that_do_not_fit_raise(settings, memory_size, message):
    with pytest.raises(ConfigError) as caught:
        DeepFusionConfig().build(parts(**settings), memory_size=memory_size)
    assert str(caught.value) == message
