"""`heedful glimpse`, and the file options of glimpse models; imports no torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from heedful.tasks.command_line import EnsembleWith, FileOption, FileOptions, PredictorLoader, Split
from heedful.tasks.remote import RemoteRequest
from heedful.terminal import echo, figure_option, handle_stdout_errors, page_option

_HELP: Mapping[Split, str] = {
    "train": "images for a glimpse model: an idx file as of MNIST, with its labels beside it",
    "dev": "images to validate on; default: some training images",
    "test": "images for a glimpse model: an idx file, with its labels beside it",
}
_FILE_NAMES = ("{split}-images-idx3-ubyte",)
FILE_OPTIONS = FileOptions(
    (FileOption("digits", "path", _HELP, file_names=_FILE_NAMES),),
    {"type": "idx-images"},
    data="images with labels",
    model="a glimpse model",
)

ImageFile = Annotated[str, Argument(help="idx file of images, with its labels beside it")]
First = Annotated[int, Option(min=1, help="first image to show, counted from 1")]
Count = Annotated[int, Option(min=1, max=1000, help="number of images to show")]
OnlyErrors = Annotated[bool, Option("--errors", help="only images that are classified wrongly")]
FigureFiles = Annotated[list[Path] | None, figure_option("write the trails as a figure")]
HTMLFile = Annotated[Path | None, page_option("write a page that plays the glimpses")]
AsJSONLines = Annotated[bool, Option("--json", help="print JSON lines instead of drawing")]


def glimpse(
    load: PredictorLoader,
    file: ImageFile,
    *,
    first: First = 1,
    count: Count = 6,
    errors: OnlyErrors = False,
    ensemble_with: EnsembleWith = None,
    figures: FigureFiles = None,
    html: HTMLFile = None,
    as_json: AsJSONLines = False,
) -> None:
    """Classify images by glimpses, and draw where the model looked.

    Images that are smaller than those of the model are placed on a canvas, as its test images were.
    A box is the patch of the first scale; numbers count the glimpses.

    Example: heedful glimpse runs/ram t10k-images.xz --html trails.html
    Example: heedful glimpse runs/ram t10k-images.xz --errors --count 12 --svg errors.svg
    """
    from itertools import islice

    from rich.console import Console

    from heedful.plotting.svg import save_drawings
    from heedful.tasks.glimpse import trajectories

    classifier = load(ensemble_with=ensemble_with or ())
    images = classifier.read_file(file)
    results = islice(classifier.predict(images, location=file), first - 1, None)
    chosen = (result for result in results if not errors or result.label != result.target)
    predictions = list(islice(chosen, count))
    render_svg, render_page = trajectories.render_svg, trajectories.render_page
    save_drawings(figures, lambda: render_svg(predictions), html, lambda: render_page(predictions))
    console = Console()
    with handle_stdout_errors():
        for prediction in predictions:
            if as_json:
                echo(json.dumps(prediction.to_json()))
            else:
                has_color = console.color_system is not None
                drawn = trajectories.draw_in_terminal(
                    prediction, width=console.width, has_color=has_color
                )
                console.print(drawn, highlight=False)
    if not as_json and trajectories.has_averaged_episodes(predictions):
        echo(trajectories.EPISODES_NOTE, err=True)


def read_remote(path: str, settings: Mapping[str, str | None], example: Any) -> list[RemoteRequest]:
    """Read the images and labels of an idx file for a server."""
    from functools import partial

    from heedful.data.images.labeled_images import IdxImagesConfig
    from heedful.tasks.glimpse.predictor import GlimpsePrediction

    return [
        RemoteRequest(
            {"pixels": image.pixels.tolist()}, partial(GlimpsePrediction.from_json, image)
        )
        for image in IdxImagesConfig(path=path).read()
    ]


COMMANDS = (glimpse,)
