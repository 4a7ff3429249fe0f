"""A model given by a table of log-probabilities, small enough to enumerate every output."""

from itertools import product

import torch

from heedful.search import StepOutput, beam_search

BOS, EOS = 0, 1


class TableModel:
    """Random log-probabilities for every history of up to `max_depth` letters of each sentence.

    The state is the index of the sentence and the history, newest token last. The attention
    weights depend on the depth and on the input token.
    """

    def __init__(self, seed, max_depth, num_letters=2, num_sentences=1, num_positions=3):
        generator = torch.Generator().manual_seed(seed)
        self.letters = tuple(range(2, 2 + num_letters))
        self.vocab_size = 2 + num_letters
        self.max_depth = max_depth
        histories = [
            history
            for length in range(max_depth + 1)
            for history in product(self.letters, repeat=length)
        ]
        shape = (num_sentences, len(histories), self.vocab_size)
        logits = 3 * torch.randn(shape, generator=generator).double()
        logits[..., BOS] = -torch.inf
        self.history_ids = {history: index for index, history in enumerate(histories)}
        self.log_probs = logits.log_softmax(-1)
        shape = (max_depth + 2, self.vocab_size, num_positions)
        self.weights = torch.rand(shape, generator=generator).double()
        self.weights /= self.weights.sum(-1, keepdim=True)

    def initial_state(self, num_sentences=1):
        return torch.arange(num_sentences), torch.full((num_sentences, self.max_depth + 2), BOS)

    def step(self, tokens, state):
        sentence_ids, histories = state
        histories = torch.cat([histories[:, 1:], tokens[:, None]], dim=1)
        prefixes = [tuple(token for token in row if token != BOS) for row in histories.tolist()]
        history_ids = torch.tensor([self.history_ids.get(prefix, 0) for prefix in prefixes])
        depths = torch.tensor([min(len(prefix), self.max_depth + 1) for prefix in prefixes])
        log_probs = self.log_probs[sentence_ids, history_ids]
        return StepOutput(log_probs, (sentence_ids, histories), self.weights[depths, tokens])

    def token_log_probs(self, tokens, sentence=0):
        """Log-probabilities of each token of an output and of EOS."""
        table, output = self.log_probs[sentence], [*tokens, EOS]
        return [
            float(table[self.history_ids[tuple(tokens[:time])], output[time]])
            for time in range(len(output))
        ]

    def output_weights(self, tokens):
        """Attention weights (tokens + 1, positions) of an output, with those of EOS."""
        inputs = [BOS, *tokens]
        return torch.stack([self.weights[time, inputs[time]] for time in range(len(inputs))])

    def outputs(self, max_length):
        """Every output of up to `max_length` tokens."""
        for length in range(max_length + 1):
            yield from map(list, product(self.letters, repeat=length))

    def ranked_outputs(self, max_length, sentence=0, keep=lambda tokens: True):
        """Every output that is kept, as (log-probability, tokens), best first."""
        kept = [tokens for tokens in self.outputs(max_length) if keep(tokens)]
        scored = [(sum(self.token_log_probs(tokens, sentence)), tokens) for tokens in kept]
        return sorted(scored, reverse=True)

    def only(self, sentence):
        """Keep one sentence alone."""
        self.log_probs = self.log_probs[sentence : sentence + 1]
        return self


def never_stop(status):
    """Continue to the maximum length."""
    return False


def search(model, *, beam_size, max_length, num_sentences=1, **options):
    """Run beam search; the maximum length is one number, or a list with one per sentence."""
    lengths = [max_length] * num_sentences if isinstance(max_length, int) else max_length
    return beam_search(
        model,
        model.initial_state(num_sentences),
        bos=BOS,
        eos=EOS,
        beam_size=beam_size,
        max_lengths=torch.tensor(lengths),
        **options,
    )


def contains(tokens, phrase):
    """Whether a phrase occurs in an output."""
    starts = range(len(tokens) - len(phrase) + 1)
    return any(tokens[start : start + len(phrase)] == list(phrase) for start in starts)
