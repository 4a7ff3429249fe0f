"""`heedful caption`, and the file options of captioning; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer
from typer import Argument, Option

from heedful.tasks.command_line import (
    EnsembleWith,
    FileOption,
    FileOptions,
    PredictorLoader,
    Split,
)
from heedful.terminal import BeamSize, Overrides, handle_stdout_errors, with_progress

_HELP: Mapping[Split, str] = {
    "train": "images and their captions for a captioner: .tsv, .csv or .jsonl; also .gz and .xz",
    "dev": "captioned images to validate on; default: some training images",
    "test": "images and reference captions, in a file as for training",
}
_FEATURES_HELP: Mapping[Split, str] = {
    "train": "features of the images, instead of pictures: .npy or .safetensors",
    "dev": "features of the images of --dev-captions",
    "test": "features of the images of --captions",
}
_SCALE = "steps and offsets of 8- and 4-bit features: .npy"
_IMAGES = "folder of the pictures, or a sheet of them (.npy, .npy.gz); default: that of the file"
_COLUMNS = {
    "image_column": "column of the images; default: image, file_name, path ..., else the first",
    "caption_column": "column of the captions; default: caption, text, name ..., else the second",
}
FILE_OPTIONS = FileOptions(
    (FileOption("captions", "path", _HELP),),
    {"type": "captions"},
    columns=_COLUMNS,
    optional=(
        FileOption("features", "features", _FEATURES_HELP),
        FileOption("features-scale", "features_scale", dict.fromkeys(_HELP, _SCALE)),
        FileOption("images", "images", dict.fromkeys(_HELP, _IMAGES)),
    ),
)

Images = Annotated[
    list[str],
    Argument(help="pictures, folders of pictures, feature files, or rows of them: FILE.npy#ROW"),
]
NBest = Annotated[
    int | None,
    Option("--nbest", min=1, help="captions per image; widens the beam", show_default="1"),
]
AsJSONLines = Annotated[bool, Option("--json", help="print a JSON object for each image instead")]


def caption(
    load: PredictorLoader,
    images: Images,
    *,
    ensemble_with: EnsembleWith = None,
    beam: BeamSize = None,
    n_best: NBest = None,
    as_json: AsJSONLines = False,
    overrides: Overrides = None,
) -> None:
    """Write captions for pictures, and draw where each word looked.

    Example: heedful caption runs/icons airplane.png
    Example: heedful caption runs/icons pictures/ --html page.html --sheet sheet.png
    Example: heedful caption runs/flickr8k features_test.npy#17 --json
    """
    captioner = load(overrides=overrides or (), ensemble_with=ensemble_with or ())
    names = captioner.loader.expand(images)
    stream = captioner.predict(names, beam_size=beam, n_best=n_best)
    with handle_stdout_errors():
        for result in with_progress(stream, total=len(names)):
            typer.echo(f"{result.image}\t{result.text}")


COMMANDS = (caption,)
