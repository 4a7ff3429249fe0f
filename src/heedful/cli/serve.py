"""`heedful serve`: runs behind an HTTP address."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from heedful.cli.options import with_settings
from heedful.errors import check
from heedful.serving.protocol import ServedRun
from heedful.serving.settings import ServerSettings
from heedful.terminal import (
    Backend,
    Dtype,
    Overrides,
    Quiet,
    backend_overrides,
    echo,
    handle_stdout_errors,
    parse_languages,
)

Runs = Annotated[
    list[str], Argument(metavar="RUN", help="runs; NAME=RUN names one, NAME=RUN,RUN an ensemble")
]
Languages = Annotated[
    list[str] | None,
    Option(metavar="de-en", help="languages of a translator; NAME=de-en if there are several"),
]
Devices = Annotated[
    list[str] | None,
    Option("--device", help="cpu, cuda, cuda:1, or auto; repeatable: a worker for each"),
]


@with_settings(ServerSettings)
def serve(
    runs: Runs,
    *,
    languages: Languages = None,
    devices: Devices = None,
    dtype: Dtype = "fp32",
    backend: Backend = None,
    overrides: Overrides = None,
    settings: ServerSettings,
    open_browser: Annotated[
        bool, Option("--open", help="open the inspector in a browser; adds --ui")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Serve trained runs over HTTP: one address for all tasks.

    POST /v1/translate, /v1/generate, /v1/classify ... predict; GET /v1/models lists the runs,
    /openapi.json describes all routes. Clients of LibreTranslate use /translate, those of OpenAI
    /v1/completions. SIGHUP loads the runs again, SIGTERM finishes what was begun.

    Needs: pip install 'heedful[serve]'

    Example: heedful serve runs/de-en --languages de-en
    Example: heedful serve de=runs/de-en la=runs/demo runs/trec --port 8080
    Example: heedful serve best=runs/de-en-1,runs/de-en-2 --device cuda:0 --device cuda:1
    Example: heedful serve runs/de-en --open
    Example: HEEDFUL_TOKEN=secret heedful serve runs/de-en --host 0.0.0.0
    Example: curl localhost:8000/v1/translate --json '{"inputs": ["Ein Hund."]}'
    """
    import asyncio
    import webbrowser

    _check_packages()
    settings = settings.model_copy(update={"ui": settings.ui or open_browser})
    settings.check_access()
    served = parse_runs(runs, languages or ())

    from heedful.serving.server import Server
    from heedful.serving.worker import ServingJob

    changed = (*(overrides or ()), *backend_overrides(backend))
    jobs = [ServingJob(served, device, changed, dtype) for device in devices or ["auto"]]

    def report(line: str) -> None:
        if not quiet:
            echo(line, err=True)

    def announce(line: str) -> None:
        with handle_stdout_errors():
            echo(line)
        if open_browser:
            webbrowser.open(line.split(maxsplit=1)[0])

    async def run() -> None:
        server = Server(jobs, settings, announce=announce, report=report)
        names = ", ".join(run.name for run in served)
        report(f"{server.url}: loading {names} ...")
        await server.run()

    asyncio.run(run())


def _check_packages() -> None:
    for package in ("fastapi", "httptools", "prometheus_client", "uvicorn"):
        message = f"needs {package}, which is not installed"
        hint = "install it with: pip install 'heedful[serve]'"
        check(find_spec(package) is not None, "serve", message, hint)


def parse_runs(runs: Sequence[str], languages: Sequence[str]) -> list[ServedRun]:
    """Return the runs that arguments name; raises ConfigError for a name that is used twice."""
    served: dict[str, ServedRun] = {}
    for argument in runs:
        name, is_named, folders = (
            argument.rpartition("=") if not Path(argument).exists() else ("", "", argument)
        )
        paths = folders.split(",") if is_named else [folders]
        name = name or Path(folders).resolve().name
        hint = "name one of them: NAME=RUN"
        check(name not in served, argument, f"two runs are called {name!r}", hint)
        served[name] = ServedRun(name, paths)
    for argument in languages:
        name, _, pair = argument.rpartition("=")
        codes = parse_languages(pair)
        name = name or next(iter(served))
        message, hint = f"no run is called {name!r}", f"choose from: {', '.join(served)}"
        check(name in served, "--languages", message, hint)
        served[name] = served[name]._replace(languages=codes)
    return list(served.values())
