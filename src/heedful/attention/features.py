"""Features: what does the past add inside the tanh of an additive score?

A feature is the same for every query of a step, so it is added to what the keys prepared:
tanh(W q + (U k + feature)). A feature of the query's own needs no place here: W [x; y] is
W_x x + W_y y, so it is what the query is made of. Law: the feature of a past in which nothing
was asked is zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from heedful.attention.past import Past
from heedful.shapes import Float


class Feature(nn.Module, ABC):
    """What the past adds to a prepared key."""

    @abstractmethod
    def forward(self, past: Past) -> Float[Tensor, "*B S A"]:
        """Say what to add for each place; where S is 1, the same for all of them."""


class CoverageFeature(Feature):
    """w_c * total_s, the attention place s has had so far  (See et al. 2017, equation 11)."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(1, hidden_size, bias=False)

    def forward(self, past: Past) -> Float[Tensor, "*B S A"]:
        """Tell how much each place has been looked at."""
        return self.projection(past.total.unsqueeze(-1))


class LocationFeature(Feature):
    """U f_s, f = F * last: filters over where was looked last  (Chorowski et al. 2015, eq. 8-9).

    f_s holds what each filter sees in the `width` weights round place s. Beyond both ends there
    is nothing, just as hidden places have no weight, so padding is not seen. As everywhere in
    torch the filters are not turned round first: they are learned the other way round.
    """

    def __init__(self, hidden_size: int, *, num_filters: int, width: int) -> None:
        super().__init__()
        assert width % 2 == 1, width
        self.filters = nn.Conv1d(1, num_filters, width, padding=width // 2, bias=False)
        self.projection = nn.Linear(num_filters, hidden_size, bias=False)

    def forward(self, past: Past) -> Float[Tensor, "*B S A"]:
        """Tell what the last weights look like from each place."""
        size = past.last.size(-1)
        seen = self.filters(past.last.reshape(-1, 1, size)).mT  # (rows, S, filters)
        return self.projection(seen).view(*past.last.shape, -1)


class ContextFeature(Feature):
    """W_c c, c being what was taken last  (Cheng et al. 2016, the LSTMN)."""

    def __init__(self, hidden_size: int, *, value_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(value_size, hidden_size, bias=False)

    def forward(self, past: Past) -> Float[Tensor, "*B 1 A"]:
        """Tell what was taken last, to every place alike."""
        return self.projection(past.context).unsqueeze(-2)
