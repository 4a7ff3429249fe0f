import torch

from tests.catalogue import batch, build, store


def test_the_first_state_is_a_tanh_of_the_summary_for_each_layer():
    model = build("two layers, one direction")
    encoded = model.encoder(*batch(store(), [0, 1]).sources)
    state = model.decoder.start(encoded).wiring
    for bridge, (hidden, memory) in zip(model.decoder.bridges, state.cells, strict=True):
        torch.testing.assert_close(hidden, bridge(encoded.summary).tanh())
        assert (memory == 0).all()


def test_every_weight_of_every_part_learns():
    model = build("lstm, step-then-attend, additive")
    model(batch(store(), [0, 4, 6])).log_probs.square().sum().backward()
    still = [name for name, weight in model.named_parameters() if not weight.grad.abs().sum()]
    assert still == []
