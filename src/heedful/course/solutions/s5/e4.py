"""A glimpse (code, 15 minutes).

Windows around (y, x) with sides patch, 2 patch, 4 patch; each is averaged to patch x patch, and what
lies outside the image is zero. A window begins side // 2 above and left of (y, x).
"""

import torch
from torch.nn.functional import avg_pool2d, pad


def glimpse(image, y, x, patch, num_scales):
    """Return (num_scales, patch, patch)."""
    margin = patch * 2**num_scales
    padded = pad(image[None, None], (margin,) * 4)  # blank
    windows = []
    for scale in range(num_scales):
        side = patch * 2**scale
        top, left = y + margin - side // 2, x + margin - side // 2
        window = padded[..., top : top + side, left : left + side]
        windows.append(avg_pool2d(window, 2**scale)[0, 0])  # blank
    return torch.stack(windows)
