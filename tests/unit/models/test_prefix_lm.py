"""A language model that reads "source, separator, target", against one plain recurrence."""

import torch

from heedful.data.text.batching import Batch, SourceBatch
from heedful.models.prefix_lm import PrefixLanguageModelConfig
from heedful.models.scheduled_sampling import InputSampler
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


def test_source_and_target_are_one_sequence_for_backbone():
    model = build(backbone={"cell": "lstm", "num_layers": 2})
    batch = example([4, 5, 6], [7, 8])
    inputs = torch.cat(
        [
            model.source_embedding(batch.sources.tokens),
            model.target_embedding(batch.decoder_inputs),
        ],
        dim=1,
    )
    stack = torch.nn.LSTM(5, 6, num_layers=2, batch_first=True).double()
    for index, layer in enumerate(model.backbone.layers):
        for name, weight in layer.forward_cell.layer.named_parameters():
            getattr(stack, name.replace("l0", f"l{index}")).data.copy_(weight)
    outputs = stack(inputs)[0][:, 4:]
    expected = model.lm_head(outputs).log_softmax(dim=-1)
    torch.testing.assert_close(model(batch).log_probs, expected)


def test_recurrent_backbone_has_zero_weights():
    output = build()(example([4, 5], [7]), need_weights=True)
    assert output.weights.shape == (1, 2, 3)
    assert not output.weights.any()
    assert output.auxiliary_losses == {}


def test_scheduled_sampling_with_ratio_zero_feeds_own_tokens():
    model = build()
    batch = example([4, 5, 6], [7, 8, 9])
    torch.manual_seed(1)
    sampled = model.forward_scheduled_sampling(batch, InputSampler(0.0, "sample")).log_probs
    torch.manual_seed(1)
    state, inputs, log_probs = model.initial_state(batch.sources), batch.decoder_inputs[:, 0], []
    for _ in range(4):
        if log_probs:
            inputs = torch.distributions.Categorical(logits=log_probs[-1]).sample()
            torch.rand(1)  # the draw between gold and own token
        step = model.step(inputs, state)
        state = step.state
        log_probs.append(step.log_probs)
    torch.testing.assert_close(sampled, torch.stack(log_probs, dim=1))
