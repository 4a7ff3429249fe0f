"""Hugging Face's BERT for pretraining: equal outputs, losses and gradients, same parameters.

heedful has BOS for [CLS] and a row more in its embedding, for the mask symbol. The second class of
its next-sentence head is "is next"; there it is the first.
"""

import torch
from transformers import BertConfig, BertForPreTraining

from heedful.data.text.token_stream import LMBatch
from heedful.models.masked_language_model import (
    MaskedLanguageModelConfig,
    MaskingConfig,
    mask_tokens,
    sample_sentence_pairs,
)
from heedful.recipes import load_recipe
from heedful.tokenization.vocabulary import BOS, PAD

SIZE, HIDDEN, NUM_LAYERS, VOCABULARY, MAX_POSITIONS = 12, 20, 2, 15, 16
NAMES = {
    "encoder.embedding.embedding": "bert.embeddings.word_embeddings",
    "encoder.embedding.position_combiner.encoding.embedding": "bert.embeddings.position_embeddings",
    "encoder.embedding.segment_embedding": "bert.embeddings.token_type_embeddings",
    "encoder.embedding.norm": "bert.embeddings.LayerNorm",
    "encoder.stack.layers": "bert.encoder.layer",
    "self_attention.attention.query_projection": "attention.self.query",
    "self_attention.attention.key_projection": "attention.self.key",
    "self_attention.attention.value_projection": "attention.self.value",
    "self_attention.attention.output_projection": "attention.output.dense",
    "self_attention_residual.norm": "attention.output.LayerNorm",
    "feed_forward.input_projection": "intermediate.dense",
    "feed_forward.output_projection": "output.dense",
    "feed_forward_residual.norm": "output.LayerNorm",
    "head.0": "cls.predictions.transform.dense",
    "head.2": "cls.predictions.transform.LayerNorm",
    "projection.bias": "cls.predictions.bias",
    "next_sentence.0": "bert.pooler.dense",
    "next_sentence.2": "cls.seq_relationship",
}


def foreign_name(name):
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    return name


def build_model():
    """Build the model of the recipe bert-2018, scaled down."""
    settings = load_recipe("bert-2018").model.model_dump()
    settings["encoder"] |= {"hidden_size": SIZE, "num_layers": NUM_LAYERS, "dropout": 0.0}
    settings["encoder"]["attention"]["multi_head"]["num_heads"] = 2
    settings["encoder"]["attention"]["dropout"] = 0.0
    settings["encoder"]["feed_forward"][0]["intermediate_size"] = HIDDEN
    settings["encoder"]["positional_encoding"]["max_positions"] = MAX_POSITIONS
    config = MaskedLanguageModelConfig.model_validate(settings)
    return config.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY).double()


def build_reference():
    sizes = {
        "vocab_size": VOCABULARY + 1,
        "hidden_size": SIZE,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": 2,
        "intermediate_size": HIDDEN,
        "max_position_embeddings": MAX_POSITIONS,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    reference = BertForPreTraining(BertConfig(**sizes)).double()
    assert reference.config.layer_norm_eps == load_recipe("bert-2018").model.encoder.norm_eps
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.normal_(std=0.5)
    return reference


def pairs():
    tokens = torch.randint(3, VOCABULARY, (6, 9))  # EOS is among them
    batch = sample_sentence_pairs(tokens, seed="1")
    assert batch.is_next.any()
    assert not batch.is_next.all()
    masked = mask_tokens(batch.inputs, MaskingConfig(mlm_probability=0.4), vocab_size=15, seed="2")
    return LMBatch(*masked[:2], batch.segments, batch.is_next)


def with_cls(tokens, value):
    return torch.cat([torch.full((len(tokens), 1), value), tokens], dim=1)


def test_bert_same_as_hugging_face_in_value_loss_and_gradient():
    torch.manual_seed(0)
    model, reference, batch = build_model(), build_reference(), pairs()
    theirs = dict(reference.named_parameters())
    names = {name: foreign_name(name) for name, _ in model.named_parameters()}
    assert set(names.values()) == theirs.keys()
    state = {name: theirs[their].detach() for name, their in names.items()}
    for part in ("weight", "bias"):
        state[f"next_sentence.2.{part}"] = state[f"next_sentence.2.{part}"].flip(0)
    model.load_state_dict(
        state | {"projection.weight": state["encoder.embedding.embedding.weight"]}
    )

    inputs, labels = with_cls(batch.inputs, BOS), with_cls(batch.targets, PAD)
    output = model(batch)
    expected = reference(
        input_ids=inputs,
        attention_mask=(inputs != PAD).long(),
        token_type_ids=with_cls(batch.segments, 0),
    )
    is_real = batch.inputs != PAD
    log_probs = expected.prediction_logits[:, 1:, :VOCABULARY].log_softmax(dim=-1)
    torch.testing.assert_close(output.log_probs[is_real], log_probs[is_real])

    is_next_log_probs = expected.seq_relationship_logits.log_softmax(dim=-1)
    chosen = torch.where(batch.is_next, is_next_log_probs[:, 0], is_next_log_probs[:, 1])
    num_targets = (labels != PAD).sum(dim=1)
    expected_loss = -(chosen * num_targets).sum()
    torch.testing.assert_close(output.auxiliary_losses["next-sentence"], expected_loss)

    def total(log_probs, next_sentence_loss):
        chosen = log_probs.gather(-1, batch.targets.unsqueeze(-1)).squeeze(-1)
        return next_sentence_loss - chosen[batch.targets != PAD].sum()

    total(output.log_probs, output.auxiliary_losses["next-sentence"]).backward()
    total(log_probs, expected_loss).backward()
    for name, parameter in model.named_parameters():
        gradient = theirs[names[name]].grad
        if name.startswith("next_sentence.2"):
            gradient = gradient.flip(0)
        if name == "encoder.embedding.embedding.weight":
            gradient[PAD] = parameter.grad[PAD] = 0  # theirs trains the padding vector as output
        torch.testing.assert_close(parameter.grad, gradient, msg=name)
