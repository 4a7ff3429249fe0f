"""A differentiable glimpse model: the Gaussian window of DRAW, an LSTM and a classifier.

h_t = LSTM(read(x; h_(t-1)), h_(t-1)); p(class | x) = softmax(W h_T + b)  (Gregor et al. 2015,
section 4.1). The window moves and zooms only by gradients of the cross-entropy: there is nothing
to sample, and no reward.
"""

from typing import Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from typing_extensions import override

from heedful.data.images.labeled_images import LabeledImageBatch
from heedful.layers.glimpses import GaussianWindow
from heedful.layers.initialization import DefaultInitConfig, InitConfig
from heedful.shapes import Float
from heedful.tasks.glimpse.model import (
    CoreName,
    GlimpseModel,
    GlimpseModelConfigBase,
    GlimpseOutput,
    TrainingOutput,
    build_core,
    initial_core_state,
)


class DrawWindowModel(GlimpseModel):
    """Glimpses through a window of Gaussian filters."""

    num_training_episodes = 1

    def __init__(self, window: GaussianWindow, core: nn.Module, config: "DrawWindowConfig") -> None:
        super().__init__()
        self.window = window
        self.core = core
        self.classifier = nn.Linear(config.hidden_size, config.num_classes)
        self.hidden_size, self.num_glimpses = config.hidden_size, config.num_glimpses
        self.image_size, self.num_classes = config.image_size, config.num_classes

    @override
    def forward(self, batch: LabeledImageBatch) -> TrainingOutput:
        images = batch.render(self.image_size)
        return TrainingOutput(self.classify(images, None).log_probs, batch.labels, {})

    @override
    def classify(
        self, images: Float[Tensor, "B Y X"], uniform: Float[Tensor, "B T 3"] | None
    ) -> GlimpseOutput:
        """Classify images; nothing is random."""
        del uniform
        state = initial_core_state(self.core, images.new_zeros(len(images), self.hidden_size))
        states, boxes = [], []
        for index in range(self.num_glimpses):
            window = self.window.parameters_of(state[0])
            if index in self.locations:
                window = self.window.move(window, self.locations[index])
            state = self.core(self.window(images, window), state)
            states.append(state[0])
            boxes.append(self.window.boxes(window))
        step_log_probs = self.classifier(torch.stack(states, dim=1)).log_softmax(dim=-1)
        counts = torch.full((len(images),), self.num_glimpses, device=images.device)
        log_probs, stacked = step_log_probs[:, -1], torch.stack(boxes, dim=1)
        return GlimpseOutput(log_probs, step_log_probs, stacked, counts, counts.to(log_probs.dtype))


class DrawWindowConfig(GlimpseModelConfigBase):
    """A differentiable window over the image (DRAW, Gregor et al. 2015)."""

    type: Literal["draw-window"] = "draw-window"
    window_size: PositiveInt = Field(default=12, le=1024)
    """Filters in each direction, N: height and width of what is read."""
    num_glimpses: PositiveInt = Field(default=8, le=1000)
    """Glimpses of an image."""
    core: CoreName = "lstm"
    """Recurrent network: `lstm`, as in the paper, or `rnn` with rectified units."""
    init: InitConfig = DefaultInitConfig()
    """Initial values of the parameters."""

    def build(self, *, source_vocab_size: int = 0, target_vocab_size: int = 0) -> DrawWindowModel:
        del source_vocab_size, target_vocab_size
        window = GaussianWindow(self.hidden_size, self.image_size, self.window_size)
        core = build_core(self.core, self.window_size**2, self.hidden_size)
        model = DrawWindowModel(window, core, self)
        self.init.initialize(model)
        return model
