"""What is trained on labeled images by default.

- Device: `default-glimpses` on a CPU, the larger `ram-2014` on a GPU.
- Data: canvas and classes as in the file. Images of more than 40 pixels have three scales, the
  smallest a fifth of the image, as those of 60 pixels in the paper; others one of 8 pixels.
- Time: 5 minutes, or n / 20,000 for n images if that is more.
"""

from typing import Any

import torch

from heedful.tasks.default_recipe import DefaultRecipe, training_minutes, until_time_is_over

IMAGES_PER_MINUTE = 20_000
_MAX_SMALL_SIZE = 40


def default_recipe(device: torch.device, train: Any) -> DefaultRecipe:
    """Return the recipe for these images, or for unknown ones, if `train` is None."""
    is_cpu = device.type == "cpu"
    name = "default-glimpses" if is_cpu else "ram-2014"
    settings: dict[str, Any] = {} if is_cpu else until_time_is_over()
    if train is not None:
        images = train.read()
        size = max(images[0].pixels.shape)
        settings |= {
            "model.image_size": size,
            "model.num_classes": max(2, 1 + max(image.label for image in images)),
            "training.max_minutes": training_minutes(len(images), IMAGES_PER_MINUTE),
        }
        if size > _MAX_SMALL_SIZE:
            settings |= {"model.num_scales": 3, "model.glimpse_size": size // 5}
    return DefaultRecipe(name, settings)
