import torch

from heedful.encoders.recurrent import RecurrentEncoderConfig
from heedful.layers.cells import LstmCell
from heedful.layers.gated import ResetBeforeGruCell


def encoder(**settings):
    return RecurrentEncoderConfig(embedding_size=3, hidden_size=4, **settings).build(
        vocabulary_size=9
    )


TOKENS, LENGTHS = torch.tensor([[5, 6, 7, 8], [4, 3, 0, 0]]), torch.tensor([4, 2])


def test_the_summary_is_where_each_direction_ends():
    encoded = encoder()(TOKENS, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        forwards = encoded.states[row, length - 1, :2]
        backwards = encoded.states[row, 0, 2:]
        torch.testing.assert_close(encoded.summary[row], torch.cat([forwards, backwards]))


def test_read_one_way_the_summary_is_the_last_state():
    encoded = encoder(bidirectional=False, cell="lstm", num_layers=2)(TOKENS, LENGTHS)
    torch.testing.assert_close(encoded.summary[1], encoded.states[1, 1])


def test_states_past_the_end_are_zero():
    encoded = encoder()(TOKENS, LENGTHS)
    assert (encoded.states[1, 2:] == 0).all()


def test_the_width_of_states_is_the_hidden_size_however_it_reads():
    for bidirectional in (True, False):
        built = encoder(bidirectional=bidirectional, num_layers=3)
        assert built(TOKENS, LENGTHS).states.shape == (2, 4, 4)
        assert built.size == 4


def test_a_cell_may_be_named_or_described():
    described = {"kind": "gru", "reset": "before", "normalised": True}
    assert type(encoder(cell="lstm").layers[0].forwards) is LstmCell
    layer = encoder(cell=described).layers[0]
    assert type(layer.forwards) is type(layer.backwards) is ResetBeforeGruCell
    assert layer.forwards is not layer.backwards


def test_in_training_what_cells_drop_is_drawn_and_when_asked_it_is_not():
    built = encoder(cell={"kind": "lstm", "recurrent_dropout": 0.5, "zoneout": 0.3}, num_layers=2)
    drawn = [built(TOKENS, LENGTHS).states for _ in range(2)]
    assert not torch.equal(*drawn)
    built.eval()
    asked = [built(TOKENS, LENGTHS).states for _ in range(2)]
    assert torch.equal(*asked)
