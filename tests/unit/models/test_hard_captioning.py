"""Hard attention to an image of 2 x 2 cells: all sequences of attended cells are enumerated.

REINFORCE (Xu et al. 2015, section 4.1) must have the gradient of the expected log-likelihood, and
the exact marginal must be the sum over sequences, which no expectation exceeds (Jensen).
"""

import math
from itertools import product

import pytest
import torch

from heedful.data.text.batching import Batch, SourceBatch
from heedful.models.captioning import CaptioningConfig
from heedful.pytree import select_rows
from heedful.tokenization.vocabulary import BOS, EOS

NUM_CELLS, WORDS, TARGETS = 4, 7, (5, EOS)
BASELINES = ["zero", "moving-average", "learned"]


def build(decoder):
    """Return a captioning model in double precision, in training mode, without dropout."""
    torch.manual_seed(4)
    encoder = {"type": "features", "num_channels": 3, "grid": (2, 2), "hidden_size": 4}
    sizes = {"type": "recurrent", "cell": "lstm", "embedding_size": 3, "hidden_size": 4}
    config = CaptioningConfig.model_validate({"encoder": encoder, "decoder": {**sizes, **decoder}})
    model = config.build(source_vocab_size=0, target_vocab_size=WORDS).double().train()
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            if "baseline" not in name:  # so that the others are the same with any baseline
                weight.normal_(std=0.5)
    return model


def one_image():
    generator = torch.Generator().manual_seed(8)
    cells = torch.randn(1, NUM_CELLS, 3, dtype=torch.double, generator=generator)
    targets = torch.tensor([TARGETS])
    inputs = torch.tensor([[BOS, *TARGETS[:-1]]])
    return Batch(SourceBatch(cells, torch.tensor([NUM_CELLS])), inputs, targets)


def log_likelihood(output, batch):
    return output.log_probs.gather(-1, batch.targets.unsqueeze(-1)).sum()


def expected_log_likelihood(model, batch):
    """Sum over all sequences of cells, by recursion over words."""
    decoder, wiring = model.decoder, model.decoder.wiring
    attention, (cells,) = wiring.attention, model.encoder(*batch.sources).states
    first = decoder.initial_state(model.encoder(*batch.sources)).wiring.cells[0]

    def expectation(state, index):
        if index == len(TARGETS):
            return 0
        embedded = decoder.embedding(batch.decoder_inputs[:, index])
        keys = attention.score.prepare_keys(cells)
        probabilities = attention.score(state[0].unsqueeze(1), keys[None])[0, 0].softmax(dim=-1)
        gate = attention.readout.gate(state[0]).sigmoid()
        total = 0
        for probability, cell in zip(probabilities, cells, strict=True):
            context = gate * cell
            after = wiring.cells.cells[0](torch.cat([embedded, context], dim=-1), state)
            parts = torch.cat([after[0], context, embedded], dim=-1)
            features = wiring.pre_output(parts)
            logits = decoder.output_head.projection(features)[0]
            log_prob = logits.log_softmax(dim=-1)[TARGETS[index]]
            total = total + probability * (log_prob + expectation(after, index + 1))
        return total

    return expectation(first, 0)


def hard_attention(**alignment):
    settings = {"type": "sampled", "soft_probability": 0.0, "reward_scale": 1.0}
    return {
        "bridge": {"type": "mlp"},
        "pre_output": {"type": "deep-output"},
        "attention": {
            "score": {"type": "additive", "hidden_size": 5},
            "readout": {"type": "gated"},
            "alignment": {**settings, "entropy_bonus": 0.0, **alignment},
        },
    }


@pytest.mark.parametrize("credit", ["sentence", "future"])
@pytest.mark.parametrize("baseline", BASELINES)
def test_reinforce_gradient_is_unbiased(baseline, credit):
    """Sample until every sequence was seen; weighted by their probabilities, gradients add up."""
    model = build(hard_attention(baseline={"type": baseline}, credit=credit))
    batch, attention, alignments = one_image(), model.decoder.wiring.attention, []
    attention.register_forward_hook(lambda *call: alignments.append(call[-1].alignment))
    parameters = {name: value for name, value in model.named_parameters() if "baseline" not in name}
    total = {name: torch.zeros_like(value) for name, value in parameters.items()}
    seen = {}
    for _ in range(2000):
        if baseline == "moving-average":  # any constant
            attention.alignment_function.baseline.running_mean.fill_(-1.7)
        alignments.clear()
        output = model(batch)
        cells = tuple(int(alignment.weights.argmax()) for alignment in alignments)
        if cells in seen:
            continue
        seen[cells] = math.exp(sum(alignment.log_probs.item() for alignment in alignments))
        loss = sum(output.auxiliary_losses.values()) - log_likelihood(output, batch)
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        for name, gradient in zip(parameters, gradients, strict=True):
            total[name] += seen[cells] * gradient
        if len(seen) == NUM_CELLS ** len(TARGETS):
            break
    assert math.fsum(seen.values()) == pytest.approx(1, abs=1e-12)
    exact = torch.autograd.grad(-expected_log_likelihood(model, batch), list(parameters.values()))
    for name, gradient in zip(parameters, exact, strict=True):
        torch.testing.assert_close(total[name], gradient, rtol=1e-9, atol=1e-11, msg=name)
    assert all(gradient.abs().sum() > 0 for gradient in exact)


NO_FEEDING = {"type": "step-then-attend", "input_feeding": False}
SCORE = {"type": "additive", "hidden_size": 5}
MARGINAL = {
    "wiring": NO_FEEDING,
    "attention": {"score": SCORE, "readout": {"type": "per-position"}},
    "output_head": {"type": "marginal"},
}
EXPECTED = {"wiring": NO_FEEDING, "attention": {"score": SCORE, "alignment": {"type": "sampled"}}}


def sequence_terms(batch):
    """Return log p(cells) and log p(words | cells) of each sequence of cells.

    Each word is scored with each cell alone in the memory, by a model with soft attention.
    """
    soft = build({"wiring": NO_FEEDING, "attention": {"score": SCORE}})
    encoded = soft.encoder(*batch.sources)
    weights = soft.decoder(batch.decoder_inputs, encoded).weights[0]
    log_probs = []
    for cell in range(NUM_CELLS):
        alone = encoded._replace(
            states=encoded.states[:, cell : cell + 1],
            lengths=torch.tensor([1]),
            pooled=encoded.summary,  # the first state is that of the whole image
        )
        output = soft.decoder(batch.decoder_inputs, alone).log_probs[0]
        log_probs.append(output.gather(-1, batch.targets.T).squeeze(-1))
    for cells in product(range(NUM_CELLS), repeat=len(TARGETS)):
        words = range(len(TARGETS))
        yield (
            sum(weights[word, cell].log() for word, cell in zip(words, cells, strict=True)),
            sum(log_probs[cell][word] for word, cell in zip(words, cells, strict=True)),
        )


def test_exact_marginal_is_sum_over_all_sequences_of_cells():
    batch = one_image()
    terms = torch.stack([prior + likelihood for prior, likelihood in sequence_terms(batch)])
    actual = log_likelihood(build(MARGINAL)(batch), batch)
    torch.testing.assert_close(actual, terms.logsumexp(dim=0))


def test_expected_log_likelihood_is_below_exact_marginal():
    """The bound that REINFORCE maximizes (Xu et al. 2015, equation 10)."""
    batch = one_image()
    bound = sum(prior.exp() * likelihood for prior, likelihood in sequence_terms(batch))
    assert bound < log_likelihood(build(MARGINAL)(batch), batch)


def test_mean_of_sampled_log_likelihoods_approaches_the_bound():
    batch, model = one_image(), build(EXPECTED)
    model.decoder.wiring.attention.alignment_function.soft_probability = 0.0
    copies = Batch(*select_rows(tuple(batch), torch.zeros(20000, dtype=torch.long)))
    with torch.no_grad():
        log_probs = model(copies).log_probs.gather(-1, copies.targets.unsqueeze(-1)).sum((1, 2))
    bound = sum(prior.exp() * likelihood for prior, likelihood in sequence_terms(batch))
    error = log_probs.std() / math.sqrt(len(log_probs))
    assert abs(log_probs.mean() - bound) < 4 * error
