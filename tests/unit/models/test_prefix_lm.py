"""A language model that reads "source, separator, target", against one plain recurrence."""

import torch

from heedful.data.batching import Batch, SourceBatch
from heedful.models.prefix_lm import PrefixLanguageModelConfig
from heedful.tokenization.vocabulary import BOS, EOS

SIZES = {"source_vocab_size": 9, "target_vocab_size": 11}


def build(**settings):
    torch.manual_seed(0)
    reader = {"type": "recurrent", "hidden_size": 6, **settings.pop("backbone", {})}
    config = PrefixLanguageModelConfig.model_validate(
        {"embedding_size": 5, "backbone": reader, **settings}
    )
    return config.build(**SIZES).double().eval()


def example(source, target):
    sources = SourceBatch(torch.tensor([[*source, EOS]]), torch.tensor([len(source) + 1]))
    return Batch(sources, torch.tensor([[BOS, *target]]), torch.tensor([[*target, EOS]]))


def test_source_separator_and_target_are_one_sequence():
    model = build(backbone={"cell": "lstm", "num_layers": 2})
    batch = example([4, 5, 6], [7, 8])
    read = torch.cat(
        [
            model.source_embedding(batch.sources.tokens),
            model.target_embedding(batch.decoder_inputs),
        ],
        dim=1,
    )
    stack = torch.nn.LSTM(5, 6, num_layers=2, batch_first=True).double()
    for number, layer in enumerate(model.backbone.layers):
        for name, weight in layer.forward_cell.layer.named_parameters():
            getattr(stack, name.replace("l0", f"l{number}")).data.copy_(weight)
    shown = stack(read)[0][:, 4:]
    wanted = model.projection(shown).log_softmax(dim=-1)
    torch.testing.assert_close(model(batch).log_probs, wanted)


def test_nothing_is_looked_at():
    found = build()(example([4, 5], [7]), need_weights=True)
    assert found.weights.shape == (1, 2, 3)
    assert not found.weights.any()
    assert found.auxiliary_losses == {}


def test_a_model_that_is_never_told_goes_on_by_itself():
    model = build()
    batch = example([4, 5, 6], [7, 8, 9])
    torch.manual_seed(1)
    alone = model.forward_scheduled_sampling(batch, 0.0, "sample").log_probs
    torch.manual_seed(1)
    state, read, told = model.initial_state(batch.sources), batch.decoder_inputs[:, 0], []
    for _ in range(4):
        if told:
            read = torch.distributions.Categorical(logits=told[-1]).sample()
            torch.rand(1)  # whether to be told
        step = model.step(read, state)
        state = step.state
        told.append(step.log_probs)
    torch.testing.assert_close(alone, torch.stack(told, dim=1))


def test_a_model_that_is_all_but_always_told_reads_the_target():
    model, batch = build(), example([4, 5, 6], [7, 8, 9])
    nearly = model.forward_scheduled_sampling(batch, 1 - 1e-12, "sample").log_probs
    torch.testing.assert_close(nearly, model(batch).log_probs)
