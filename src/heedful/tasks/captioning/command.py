"""`heedful caption`, and the file options of captioning; imports no torch."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from heedful.data.text_files import ALSO_COMPRESSED
from heedful.errors import RunError, check
from heedful.tasks.command_line import (
    EnsembleWith,
    FileOption,
    FileOptions,
    PredictorLoader,
    Split,
    check_local,
    write_lines,
)
from heedful.tasks.remote import RemotePrediction, RemoteRequest
from heedful.terminal import (
    BeamSize,
    Overrides,
    echo,
    figure_option,
    handle_stdout_errors,
    page_option,
    with_progress,
)

if TYPE_CHECKING:
    from heedful.tasks.captioning.predictor import Caption

_HELP: Mapping[Split, str] = {
    "train": f"images and their captions: .tsv, .csv or .jsonl; {ALSO_COMPRESSED}; or a "
    "folder of images, each with a .txt file",
    "dev": "captioned images to validate on; default: some training images",
    "test": "images and reference captions, in a file as for training",
}
_FEATURES_HELP: Mapping[Split, str] = {
    "train": "features of the images, instead of images: .npy or .safetensors",
    "dev": "features of the images of --dev-captions",
    "test": "features of the images of --captions",
}
_SCALE = "steps and offsets of 8- and 4-bit features: .npy"
_IMAGES = "folder of the images, or a sheet of them (.npy, .npy.gz); default: that of the file"
_COLUMNS = {
    "image_column": "column of the images; default: image, file_name, path ..., else the first",
    "caption_column": "column of the captions; default: caption, text, name ..., else the second",
}
_FILE_NAMES = ("{split}.tsv", "{split}.csv", "{split}.jsonl", "{split}")  # a folder of images
FILE_OPTIONS = FileOptions(
    (FileOption("captions", "path", _HELP, file_names=_FILE_NAMES),),
    {"type": "captions"},
    data="captioned images",
    model="a captioner",
    folder_settings={"type": "image-folder"},
    columns=_COLUMNS,
    optional=(
        FileOption("features", "features", _FEATURES_HELP),
        FileOption("features-scale", "features_scale", dict.fromkeys(_HELP, _SCALE)),
        FileOption("images", "images", dict.fromkeys(_HELP, _IMAGES)),
    ),
)

Images = Annotated[
    list[str],
    Argument(help="images, folders of images, feature files, or rows of them: FILE.npy#ROW"),
]
NBest = Annotated[
    int | None,
    Option(
        "--n-best", "--nbest", min=1, help="captions per image; widens the beam", show_default="1"
    ),
]
DrawAttention = Annotated[bool, Option("--draw", help="draw where each word looked")]
FigureFiles = Annotated[
    list[Path] | None, figure_option("write an image for each word of the first image")
]
HTMLFile = Annotated[Path | None, page_option("write a page to step through the words of captions")]
OutputFile = Annotated[Path | None, Option("--output", "-o", help="write captions to this file")]
AsJSONLines = Annotated[bool, Option("--json", help="print a JSON object for each image instead")]


def caption(
    load: PredictorLoader,
    images: Images,
    *,
    ensemble_with: EnsembleWith = None,
    beam: BeamSize = None,
    n_best: NBest = None,
    draw: DrawAttention = False,
    figures: FigureFiles = None,
    html: HTMLFile = None,
    output: OutputFile = None,
    as_json: AsJSONLines = False,
    overrides: Overrides = None,
) -> None:
    """Write captions for images, and draw where each word looked.

    A line has the name of the image, a tab, and its caption; with --n-best there are several lines.
    A run that was trained on features reads files of them, as `heedful features` writes.

    Example: heedful caption runs/icons airplane.png --draw
    Example: heedful caption runs/icons images/ --html page.html --png sheet.png
    Example: heedful caption runs/flickr8k features.npy -o captions.tsv
    Example: heedful caption runs/flickr8k features.npy#17 --n-best 3 --json
    """
    check_local(load, {"--draw": draw, "--svg": figures, "--html": html})
    captioner = load(overrides=overrides or (), ensemble_with=ensemble_with or ())
    names = [name for path in images for name in captioner.read_file(path)]
    is_drawn = bool(draw or figures or html)
    options = captioner.options_class(beam_size=beam, n_best=n_best)
    stream = captioner.predict(names, options, need_layers=is_drawn)
    captions: list[Caption] = []
    lines: list[str] = []
    with handle_stdout_errors():
        for result in with_progress(stream, total=len(names)):
            new_lines = _format_lines(result, as_json=as_json)
            lines += new_lines if output else ()
            captions += [result] if is_drawn else []
            for line in () if output else new_lines:
                echo(line)
            if draw:
                _print_attention(result)
    for note in captioner.notes:
        echo(note, err=True)
    if output:
        write_lines(lines, output)
    if figures or html:
        _write_files(captions, figures or [], html)


def read_remote(path: str, settings: Mapping[str, str | None], example: Any) -> list[RemoteRequest]:
    """Read an image, or those of a folder, for a server."""
    from heedful.tasks.captioning.images import list_images

    return [_read_image(name) for name in list_images(path)]


def _read_image(name: str) -> RemoteRequest:
    content = b64encode(Path(name).read_bytes()).decode()
    return RemoteRequest(content, lambda fields: RemotePrediction({**fields, "image": name}))


def _format_lines(result: Caption, *, as_json: bool) -> list[str]:
    if as_json:
        return [json.dumps(result.to_json(), ensure_ascii=False)]
    return [f"{result.image}\t{output.text}" for output in (result, *result.alternatives)]


def _print_attention(result: Caption) -> None:
    from rich.console import Console

    _check_attention(result, "--draw")
    result.attention.to_terminal(Console())


def _write_files(captions: Sequence[Caption], figures: list[Path], html: Path | None) -> None:
    from heedful.inspection.figures import render_captions
    from heedful.plotting.svg import save_drawings

    for option, paths in (("--svg", figures), ("--html", html)):
        if paths:
            _check_attention(captions[0], option)
    attentions = [result.attention for result in captions]
    render = partial(render_captions, attentions, title="Captions")
    save_drawings(figures, attentions[0].to_svg, html, render)


def _check_attention(result: Caption, option: str) -> None:
    message, hint = "this model has no attention to draw", "leave it out, or name another run"
    check(result.has_attention or not result.tokens, option, message, hint, RunError)


COMMANDS = (caption,)
