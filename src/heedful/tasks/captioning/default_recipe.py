"""What is trained on captioned images by default.

- Data: stored features have the grid and the channels of their file. Images have the size of the
  first one, in multiples of 8 pixels, and 64 x 64 if that is more than 96; gray ones one channel.
  Words of fewer than 5 occurrences are unknown, of fewer than 2 if there are below 10,000 captions.
- Device: `default-feature-captioner` for features on a CPU, and
  `show-attend-tell-2015-soft-flickr8k`, which is larger, on a GPU; `default-captioner` for images.
- Time: 5 minutes, or n / 10,000 for n captions if that is more.
"""

from typing import Any

import torch

from heedful.data.images.features import ImageFeatures
from heedful.tasks.default_recipe import DefaultRecipe, training_minutes, until_time_is_over

CAPTIONS_PER_MINUTE = 10_000
_MANY_CAPTIONS = 10_000  # from which on words of less than 5 occurrences are unknown
_STRIDE = 8  # pixels per cell of default-captioner
_MAX_IMAGE_SIZE, _REDUCED_SIZE = 96, 64
_NUM_MEASURED = 20  # images that are looked at for colors


def default_recipe(device: torch.device, train: Any) -> DefaultRecipe:
    """Return the recipe for these images, or for unknown ones, if `train` is None."""
    if train is None:
        return DefaultRecipe("default-captioner")
    examples, store = train.read(), train.open_images()
    num_captions = sum(len(example.captions) for example in examples)
    settings: dict[str, Any] = {
        "tokenizers.tokenizer.min_frequency": 5 if num_captions >= _MANY_CAPTIONS else 2,
        "training.max_minutes": training_minutes(num_captions, CAPTIONS_PER_MINUTE),
    }
    if not isinstance(store, ImageFeatures):
        images = store.read([example.image for example in examples[:_NUM_MEASURED]])
        return DefaultRecipe("default-captioner", {**settings, **_image_settings(images)})
    settings["model.encoder.grid"] = list(store.grid)
    settings["model.encoder.num_channels"] = store.num_channels
    if device.type == "cpu":
        return DefaultRecipe("default-feature-captioner", settings)
    settings = {**until_time_is_over(), **settings}
    return DefaultRecipe("show-attend-tell-2015-soft-flickr8k", settings)


def _image_settings(images: list[Any]) -> dict[str, Any]:
    """Return the size and the channels of images, (rows, columns, channels) each."""
    size = [-(-length // _STRIDE) * _STRIDE for length in images[0].shape[:2]]
    if max(size) > _MAX_IMAGE_SIZE:
        size = [_REDUCED_SIZE, _REDUCED_SIZE]
    is_gray = all((image == image[:, :, :1]).all() for image in images)
    return {
        "model.encoder.image_size": size,
        "model.encoder.num_channels": 1 if is_gray else 3,
        "model.encoder.positional_encoding.max_positions": max(size) // _STRIDE,
    }
