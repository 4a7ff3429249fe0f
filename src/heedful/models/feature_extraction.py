"""Image features of a pretrained network, extracted once into a file.

Images are decoded by threads while the network computes. Invariant: the features of an image do
not depend on the other images of its batch. An image that cannot be read is never left out
silently: all such images are listed, before anything is written.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from heedful.data.images.features import FeatureBits, write_features
from heedful.data.images.image_files import (
    IMAGE_SUFFIXES,
    FileListError,
    ImageFiles,
    ImageFit,
    MissingExtraError,
    Pixels,
    load_pixels,
)
from heedful.errors import DataError, check, format_count
from heedful.models.efficientnet import IMAGE_SIZE, EfficientNetLite0, fold_batch_norms

_MAX_THREADS = 8


class ExtractionOptions(NamedTuple):
    """How images are resized, encoded and stored."""

    height: int = IMAGE_SIZE
    width: int = IMAGE_SIZE
    fit: ImageFit = "pad"
    bits: FeatureBits = 16
    batch_size: int = 32
    skip_broken: bool = False  # leave out images that cannot be read


class ExtractionOutput(NamedTuple):
    """Summary of the written features."""

    num_images: int
    grid: tuple[int, int]
    num_channels: int
    problems: tuple[str, ...]  # images that were left out
    notes: tuple[str, ...]  # what is unusual about others


class DecodedImage(NamedTuple):
    """An image in its size, or why it cannot be read."""

    path: str
    pixels: Pixels | None  # (channels, height, width)
    error: DataError | None
    notes: tuple[str, ...]


DecodedBatch = list[DecodedImage]


def list_images(names: Iterable[str]) -> list[str]:
    """Return image files, and all images in the folders among the names, without repetition."""
    images: dict[str, None] = {}
    missing: list[str] = []
    for name in names:
        if os.path.isdir(name):
            os.listdir(name)  # an error if that is forbidden, which rglob skips
            files = [path for path in sorted(Path(name).rglob("*")) if path.is_file()]
            inside = [
                str(path)
                for path in files
                if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")
            ]
            hint = "name a folder with images, or the images"
            check(inside, name, "contains no images", hint, DataError)
            images.update(dict.fromkeys(inside))
        elif os.path.exists(name):
            images[name] = None
        else:
            missing.append(name)
    if len(missing) == 1:
        raise DataError(missing[0], "no such file or folder", "check the path")
    if missing:
        location, hint = format_count(len(missing), "image"), "check the paths"
        raise FileListError(location, "no such files", hint, missing)
    return list(images)


def extract_features(
    images: Sequence[str],
    path: Path,
    network: EfficientNetLite0,
    options: ExtractionOptions,
    *,
    device: torch.device | str = "cpu",
    track: Callable[[Iterator[DecodedBatch]], Iterator[DecodedBatch]] = iter,
) -> ExtractionOutput:
    """Write the features of all images to a file; `track` passes batches on and counts them."""
    check(images, "images", "there are none", "name images or folders of them", DataError)
    grid = network.grid(options.height, options.width)
    shape = (*grid, network.num_channels)
    encoder: Any = fold_batch_norms(network).to(device)
    encoder = encoder.to(memory_format=torch.channels_last)  # faster on a CPU
    metadata = {
        "encoder": f"efficientnet-lite0/{network.layer}",
        "picture_size": f"{options.height}x{options.width}",
        "fit": options.fit,
    }
    errors: list[DataError] = []
    notes: list[str] = []
    with write_features(
        path, shape, bits=options.bits, num_images=len(images), metadata=metadata
    ) as writer:
        for batch in track(_decode_batches(images, options)):
            errors += [image.error for image in batch if image.error]
            notes += [note for image in batch for note in image.notes]
            readable = {image.path: image.pixels for image in batch if image.pixels is not None}
            if not readable or (errors and not options.skip_broken):
                continue  # nothing will be written, but all that is broken is listed
            pixels = np.stack(list(readable.values()))
            writer.append(list(readable), _encode(encoder, pixels, device))
        problems = [f"{error.location}: {error.message}" for error in errors]
        if errors and not (options.skip_broken and writer.images):
            location = f"{len(errors):,} of {format_count(len(images), 'image')}"
            hint = "replace or remove them, or leave them out with --skip-broken"
            raise FileListError(location, "cannot be read", hint, problems)
    return ExtractionOutput(
        len(writer.images), grid, network.num_channels, tuple(problems), tuple(notes)
    )


def _encode(
    encoder: torch.nn.Module, pixels: Pixels, device: torch.device | str
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    inputs = torch.from_numpy(pixels).to(device).contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        maps = encoder(inputs).float()
    return maps.flatten(2).transpose(1, 2).cpu().numpy()  # (images, cells, channels)


def _decode_batches(images: Sequence[str], options: ExtractionOptions) -> Iterator[DecodedBatch]:
    """Yield decoded images in batches; threads decode the next batch meanwhile."""
    starts = range(0, len(images), options.batch_size)
    batches = [images[start : start + options.batch_size] for start in starts]
    with ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1)) as pool:

        def submit(batch: Sequence[str]) -> list[Future[DecodedImage]]:
            return [pool.submit(_decode, path, options) for path in batch]

        ahead = submit(batches[0])
        for index in range(len(batches)):
            current = ahead
            ahead = submit(batches[index + 1]) if index + 1 < len(batches) else []
            yield [future.result() for future in current]


def _decode(path: str, options: ExtractionOptions) -> DecodedImage:
    notes: list[str] = []
    height, width, fit = options.height, options.width, options.fit
    try:
        pixels = load_pixels(ImageFiles(), [path], height, width, fit=fit, notes=notes)[0]
    except MissingExtraError:
        raise
    except DataError as error:
        return DecodedImage(path, None, error, ())
    return DecodedImage(path, pixels, None, tuple(notes))
