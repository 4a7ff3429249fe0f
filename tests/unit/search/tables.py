"""A model that is a table, small enough to say everything it can say."""

from itertools import product

import torch

from heedful.search import StepOutput, StoppingCriterion, beam_search

BEGIN, END = 0, 1


class Table:
    """Log-probabilities for every history of up to `depth` letters, for each of some sentences.

    The state is the number of the sentence and the history itself, newest token last; where the
    model looks is a fixed row of weights for every token and place.
    """

    def __init__(self, seed, depth, num_letters=2, sentences=1, places=3):
        generator = torch.Generator().manual_seed(seed)
        self.letters = tuple(range(2, 2 + num_letters))
        self.size = 2 + num_letters
        self.depth = depth
        histories = [
            history
            for length in range(depth + 1)
            for history in product(self.letters, repeat=length)
        ]
        shape = (sentences, len(histories), self.size)
        logits = 3 * torch.randn(shape, generator=generator).double()
        logits[..., BEGIN] = -torch.inf
        self.numbers = {history: number for number, history in enumerate(histories)}
        self.log_probs = logits.log_softmax(-1)
        self.attention_records = torch.rand(
            depth + 2, self.size, places, generator=generator
        ).double()
        self.attention_records /= self.attention_records.sum(-1, keepdim=True)

    def start(self, sentences=1):
        return torch.arange(sentences), torch.full((sentences, self.depth + 2), BEGIN)

    def step(self, tokens, state):
        sentences, histories = state
        histories = torch.cat([histories[:, 1:], tokens[:, None]], dim=1)
        said = [tuple(t for t in row if t != BEGIN) for row in histories.tolist()]
        known = torch.tensor([self.numbers.get(each, 0) for each in said])
        depths = torch.tensor([min(len(each), self.depth + 1) for each in said])
        looked = self.attention_records[depths, tokens]
        return StepOutput(self.log_probs[sentences, known], (sentences, histories), looked)

    def of(self, tokens, sentence=0):
        """The log-probabilities of each token of an output, and last of its end."""
        table = self.log_probs[sentence]
        said = [*tokens, END]
        return [
            float(table[self.numbers[tuple(tokens[:time])], said[time]])
            for time in range(len(said))
        ]

    def looked(self, tokens):
        """Where an output looked: for each token and the end, by the token read before it."""
        read = [BEGIN, *tokens]
        return torch.stack([self.attention_records[time, read[time]] for time in range(len(read))])

    def outputs(self, longest):
        """Every output of up to `max_length` tokens."""
        for length in range(longest + 1):
            yield from map(list, product(self.letters, repeat=length))

    def exhaust(self, longest, sentence=0, keep=lambda tokens: True):
        """Every output that is kept, with its log-probability, best first."""
        kept = [tokens for tokens in self.outputs(longest) if keep(tokens)]
        return sorted([(sum(self.of(tokens, sentence)), tokens) for tokens in kept], reverse=True)


class Never(StoppingCriterion):
    """Go on as long as the lengths allow."""

    def is_done(self, status):
        return False


def search(table, *, width, longest, sentences=1, **options):
    """Search a table by a beam; all sentences have the same longest length, or each its own."""
    limits = torch.tensor([longest] * sentences if isinstance(longest, int) else longest)
    found = {"bos": BEGIN, "eos": END, "beam_size": width, "max_lengths": limits, **options}
    return beam_search(table, table.start(sentences), **found)


def contains(tokens, phrase):
    """Whether a phrase is in an output, looked for place by place."""
    last = len(tokens) - len(phrase)
    return any(tokens[first : first + len(phrase)] == list(phrase) for first in range(last + 1))
