"""Requests per second, latency and memory of `heedful serve`, batched and not, and of others.

The others are CTranslate2 behind a plain FastAPI route, which calls the program of `heedful export
--to ct2` for each request, and LibreTranslate with the package of `heedful export --to argos`.
Models have the sizes of recipes and random parameters. Sources have 5 to 12 words; outputs are two
tokens longer, those of a Transformer have 10 tokens. The servers of a model are asked in turn, in
short rounds, so that a machine whose speed changes favors none; the others wait meanwhile. All
clients are coroutines of this process, each with its connection, and ask again once answered.
"""

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from itertools import cycle, groupby
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import heedful
from benchmarks.harness import Table, describe_machine
from benchmarks.peers.environments import NotInstalledError
from benchmarks.peers.libretranslate import LIBRETRANSLATE, install_package, make_ending
from benchmarks.served_systems import Cores, System, memory_mb, running
from heedful.acceleration import ct2
from heedful.client import ServerError
from heedful.conversion.exporting import export_run
from heedful.errors import HeedfulError
from heedful.recipes import load_recipe
from heedful.runs import Run
from heedful.storage.state_dict import read_weights
from heedful.tokenization.vocabulary import EOS

RECIPES = {
    "small": {"GRU": "bahdanau-2015-multi30k", "Transformer": "transformer-2017-small"},
    "tiny": {"GRU": "bahdanau-2015-small", "Transformer": "transformer-2017-tiny"},
}
NUM_WORDS = 8000
NUM_TEXTS = 200
NUM_ROUNDS = 5
DIRECT_CALLS = """
import json, sys, time
import heedful

run, device, backend, seconds, texts = json.loads(sys.argv[1])
translator = heedful.load(run, device=device, settings=[f"decoding.backend={backend}"])
list(translator.predict_texts(texts[:1]))
times, end, index = [], time.monotonic() + seconds, 0
while time.monotonic() < end or index < 20:
    start = time.perf_counter()
    list(translator.predict_texts([texts[index % len(texts)]]))
    times.append(time.perf_counter() - start)
    index += 1
print(json.dumps(times[10:]))
"""
PLAIN_SERVER = """
import sys
sys.path.insert(0, sys.argv[1])
import fastapi, uvicorn
from translate import translate

app = fastapi.FastAPI()

@app.post("/v1/translate")
def predict(body: dict) -> dict:
    return {"results": [{"text": translate(text)} for text in body["inputs"]]}

@app.get("/readyz")
def ready() -> dict:
    return {}

uvicorn.run(app, port=int(sys.argv[2]), log_level="warning")
"""


class Batches(NamedTuple):
    """What the workers of `heedful serve` have predicted, from its `/metrics`."""

    num_batches: float = 0
    num_items: float = 0
    seconds: float = 0

    @staticmethod
    def read(port: int) -> "Batches":
        """Return the sums of all models since the start."""
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            return Batches.parse(answer.read().decode())

    @staticmethod
    def parse(metrics: str) -> "Batches":
        """Return the sums of all models in this text."""
        lines = [line.rsplit(maxsplit=1) for line in metrics.splitlines()]

        def total(name: str) -> float:
            values = [float(value) for start, value in lines if start.partition("{")[0] == name]
            return sum(values)

        seconds = total("heedful_batch_duration_seconds_sum")
        count, items = (total(f"heedful_batch_items_{name}") for name in ("count", "sum"))
        return Batches(count, items, seconds)

    def since(self, before: "Batches") -> "Batches":
        """Return what came after an earlier reading."""
        return Batches(*(now - then for now, then in zip(self, before, strict=True)))


class Measurement(NamedTuple):
    """The requests of some seconds."""

    times: Sequence[float]
    num_errors: int
    seconds: float
    client_cpu: float  # seconds of a core per second: 1 would mean that clients are the limit
    batches: Batches = Batches()
    added: Sequence[float] = ()

    @staticmethod
    def join(rounds: Sequence["Measurement"]) -> "Measurement":
        """Return one measurement of several rounds."""
        seconds = sum(part.seconds for part in rounds)
        load = sum(part.client_cpu * part.seconds for part in rounds) / seconds
        totals = map(sum, zip(*(part.batches for part in rounds), strict=True))
        return Measurement(
            [taken for part in rounds for taken in part.times],
            sum(part.num_errors for part in rounds),
            *(seconds, load, Batches(*totals)),
            [taken for part in rounds for taken in part.added],
        )

    def percentile(self, percent: int) -> float:
        """Return milliseconds."""
        return statistics.quantiles(self.times, n=100, method="inclusive")[percent - 1] * 1000


# ----- runs


def write_texts(count: int, seed: int) -> list[str]:
    random = Random(seed)
    return [
        " ".join(f"w{random.randrange(NUM_WORDS)}" for _ in range(random.randint(5, 12)))
        for _ in range(count)
    ]


def train_run(recipe: str, folder: Path) -> Path:
    """Make a run with random parameters that never ends an output by itself."""
    texts = write_texts(8000, seed=1)
    is_recurrent = load_recipe(recipe).tokenizers.type == "separate"
    words = [f"tokenizers.{side}={{type: word}}" for side in ("source", "target")]
    shared = "tokenizers={type: shared, tokenizer: {type: subword, vocab_size: 8000}}"
    settings = [
        *(words if is_recurrent else [shared, "model.embeddings=separate"]),
        *("training.batching.max_tokens=512", "decoding.beam_size=1"),
        *("decoding.max_length_ratio=1", "decoding.max_length_offset=1"),
    ]
    pairs = list(zip(texts, texts, strict=True))
    with redirect_stdout(sys.stderr):
        heedful.train(recipe, folder, data=pairs, steps=1, settings=settings, device="cpu")
    weights = read_weights(folder / "weights.safetensors")
    if is_recurrent:
        weights["decoder.output_head.projection.bias"][EOS] = -1e4
    else:
        make_ending(weights, num_tokens=10)
    Run(folder).save_model(weights, step=1)
    return folder


# ----- clients


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def ask(port: int, requests: Sequence[bytes], end: float) -> list[tuple[int, float]]:
    """Send requests one after another until the end; return status and seconds of each."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = []
    for request in cycle(requests):
        start = time.perf_counter()
        if start > end:
            break
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))
        answers.append((int(head.split(maxsplit=2)[1]), time.perf_counter() - start))
    writer.close()
    return answers


async def measure_added(port: int, requests: Sequence[bytes], seconds: float) -> list[float]:
    """Send requests one after another; return the seconds of each that were not the worker's."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def receive(request: bytes) -> tuple[str, float]:
        start = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        body = await reader.readexactly(int(length))
        return body.decode(), time.perf_counter() - start

    async def read_batches() -> Batches:
        return Batches.parse(
            (await receive(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"))[0]
        )

    before, end, added = await read_batches(), time.perf_counter() + seconds, []
    for request in cycle(requests):
        if time.perf_counter() > end:
            break
        _, taken = await receive(request)
        after = await read_batches()
        added.append(taken - after.since(before).seconds)
        before = after
    writer.close()
    return added


async def measure(
    port: int, requests: Sequence[bytes], num_clients: int, seconds: float
) -> Measurement:
    """Measure clients; see `Server.measure`."""
    start, cpu = time.perf_counter(), cpu_seconds()
    random = Random(num_clients)
    clients = [
        ask(port, random.sample(requests, len(requests)), start + seconds)
        for _ in range(num_clients)
    ]
    answers = [answer for client in await asyncio.gather(*clients) for answer in client]
    elapsed = time.perf_counter() - start
    times = [taken for status, taken in answers if status == 200]
    load = (cpu_seconds() - cpu) / elapsed
    return Measurement(times, len(answers) - len(times), elapsed, load)


# ----- what is compared


def list_systems(
    runs: dict[str, Path], devices: Sequence[str], allowed: Sequence[str], exported: Path
) -> list[System]:
    """Return what is measured, in this order; `allowed` are backends on a CPU."""
    systems = []
    for model, run in runs.items():
        serve = [sys.executable, "-m", "heedful", "serve", str(run), "--quiet"]
        for device in devices:
            backends = ["torch"]
            if device == "cpu" and model == "Transformer" and ct2.is_installed():
                backends = ["ct2", "torch"]
            backends = [name for name in backends if device != "cpu" or name in allowed]
            for backend in backends:
                choices = ["--device", device, "--backend", backend]
                rest = device, backend
                systems += [
                    System(model, "direct call", *rest),
                    System(model, "heedful serve", *rest, [*serve, *choices]),
                    System(model, "--max-batch 1", *rest, [*serve, *choices, "--max-batch", "1"]),
                ]
            if "ct2" in backends:
                plain = [sys.executable, "-c", PLAIN_SERVER, str(exported)]
                systems.append(System(model, "plain FastAPI route", device, "ct2", plain))
    return systems


class Server:
    """A server that runs."""

    def __init__(self, system: System, port: int, pid: int, texts: Sequence[str]) -> None:
        self.system, self.port, self.pid = system, port, pid
        self.requests = list(map(system.request, texts))

    def measure(self, num_clients: int, seconds: float) -> Measurement:
        """Measure clients that send one request after another."""
        if not self.system.has_metrics:
            return asyncio.run(measure(self.port, self.requests, num_clients, seconds))
        before = Batches.read(self.port)
        result = asyncio.run(measure(self.port, self.requests, num_clients, seconds))
        result = result._replace(batches=Batches.read(self.port).since(before))
        if num_clients > 1:
            return result
        return result._replace(added=asyncio.run(measure_added(self.port, self.requests, seconds)))


class Benchmark:
    """Measures systems, prints their rows and keeps them."""

    def __init__(self, options: argparse.Namespace, runs: dict[str, Path]) -> None:
        self.options, self.runs = options, runs
        self.cores = Cores(options.server_cores)
        self.texts = write_texts(NUM_TEXTS, seed=2)
        if options.texts:
            self.texts = options.texts.read_text(encoding="utf-8").splitlines()
        self.rows: list[dict[str, Any]] = []
        self.table = Table(
            *("model", "backend", "system", "clients", "requests/s", "p50 ms", "p99 ms"),
            *("memory, MB", "clients' CPU"),
        )

    def measure(self, systems: Sequence[System]) -> None:
        """Measure the systems of a model; say which cannot run."""
        for system in systems:
            if not system.command:
                with self.leaving_out(system):
                    self.measure_calls(system)
        with ExitStack() as stack:
            servers = []
            for port, system in enumerate(systems, self.options.port):
                if system.command:
                    with self.leaving_out(system):
                        pid = stack.enter_context(running(self.cores, system, port))
                        servers.append(Server(system, port, pid, self.texts))
            self.measure_servers(servers)

    @contextmanager
    def leaving_out(self, system: System) -> Iterator[None]:
        """Say why a system cannot be measured, if an error is raised."""
        try:
            yield
        except (RuntimeError, ServerError, OSError, EOFError) as error:
            print(f"left out: {system.model}, {system.name}: {error}")

    def measure_libretranslate(self, folder: Path) -> None:
        """Measure LibreTranslate with the Transformer; say so if it cannot be installed."""
        try:
            run = self.runs.get("Transformer") or self.runs["run"]
            command, variables = install_package(run, folder)
        except (NotInstalledError, HeedfulError, KeyError) as error:
            print(f"left out: {LIBRETRANSLATE.name}: {error}")
            return
        name = LIBRETRANSLATE.name
        self.measure([System("Transformer", name, "cpu", "ct2", command, variables)])

    def measure_servers(self, servers: Sequence["Server"]) -> None:
        for server in servers:
            server.measure(max(self.options.clients), self.options.warmup)
        for num_clients in self.options.clients:
            seconds = self.seconds(num_clients) / NUM_ROUNDS
            rounds: dict[Server, list[Measurement]] = {server: [] for server in servers}
            for _ in range(NUM_ROUNDS):
                for server in servers:
                    rounds[server].append(server.measure(num_clients, seconds))
            for server, parts in rounds.items():
                result = Measurement.join(parts)
                self.add(server.system, num_clients, result, memory_mb(server.pid))

    def seconds(self, num_clients: int) -> float:
        """Return for how long is measured: requests one after another differ little."""
        return min(self.options.seconds, 6.0) if num_clients == 1 else self.options.seconds

    def measure_calls(self, system: System) -> None:
        run = str(self.runs[system.model])
        task = json.dumps([run, system.device, system.backend, self.seconds(1), self.texts])
        command = [sys.executable, "-c", DIRECT_CALLS, task]
        with self.cores.start(command, stdout=subprocess.PIPE) as process:
            output = process.communicate()[0]
        if process.returncode:
            raise RuntimeError(f"the process ended with {process.returncode}")
        times = json.loads(output)
        self.add(system, 1, Measurement(times, 0, sum(times), 0.0), [])

    def add(
        self, system: System, num_clients: int, result: Measurement, memory: Sequence[int]
    ) -> None:
        row = {
            **{name: getattr(system, name) for name in ("model", "name", "device", "backend")},
            "clients": num_clients,
            "requests_per_second": round(len(result.times) / result.seconds, 1),
            "p50_ms": round(result.percentile(50), 2),
            "p99_ms": round(result.percentile(99), 2),
            "num_requests": len(result.times),
            **self.summarize(result),
            "num_errors": result.num_errors,
            "memory_mb": list(memory),
            "client_cpu": round(result.client_cpu, 2),
        }
        self.rows.append(row)
        backend = system.backend if system.device == "cpu" else system.device
        name = f"{system.name} ({result.num_errors} errors)" if result.num_errors else system.name
        self.table.add(
            *(system.model, backend, name, num_clients, f"{row['requests_per_second']:,.1f}"),
            *(f"{row['p50_ms']:,.1f}", f"{row['p99_ms']:,.1f}"),
            *(" + ".join(map(str, memory)), f"{result.client_cpu:.0%}"),
        )

    @staticmethod
    def summarize(result: Measurement) -> dict[str, float]:
        """Return the size of batches, how busy the worker was, what a request takes besides."""
        batches = result.batches
        if not batches.num_batches:
            return {}
        values = {
            "batch_items": round(batches.num_items / batches.num_batches, 1),
            "worker_load": round(batches.seconds / result.seconds, 2),
        }
        if result.added:
            values["added_ms"] = round(1000 * statistics.median(result.added), 2)
        return values

    def compare(self) -> list[dict[str, Any]]:
        """Return what batches gain with most clients, and what one client waits besides."""
        found = {
            (row["model"], row["device"], row["backend"], row["name"], row["clients"]): row
            for row in self.rows
        }
        most, comparisons = max(self.options.clients), []
        for model, device, backend in dict.fromkeys(key[:3] for key in found):
            key = model, device, backend
            batched, single = (
                found.get((*key, name, most)) for name in ("heedful serve", "--max-batch 1")
            )
            alone = found.get((*key, "heedful serve", 1))
            if batched and single and alone:
                speed = batched["requests_per_second"] / single["requests_per_second"]
                comparisons.append(
                    {
                        **{"model": model, "device": device, "backend": backend},
                        "batching_speedup": round(speed, 1),
                        "p99_ratio": round(batched["p99_ms"] / single["p99_ms"], 3),
                        "added_ms": alone["added_ms"],
                    }
                )
        return comparisons


def parse_options() -> argparse.Namespace:
    def cores(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    models = [*RECIPES["small"]]
    parser.add_argument("--model", nargs="+", choices=models, default=models)
    parser.add_argument("--size", choices=RECIPES, default="small", help="of the models")
    parser.add_argument("--device", nargs="+", default=["cpu"], help="cpu, cuda, or both")
    backends = ["torch", "ct2"]
    parser.add_argument("--backend", nargs="+", choices=backends, default=backends, help="on a CPU")
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="of each measurement, with 1 client 6 at most"
    )
    parser.add_argument("--warmup", type=float, default=2.0, help="seconds before each server")
    parser.add_argument(
        "--server-cores", type=cores, default=[], help="such as 0,1; clients get the others"
    )
    parser.add_argument("--run", type=Path, help="a translator to serve, instead of both models")
    parser.add_argument("--texts", type=Path, help="lines to translate, for --run")
    parser.add_argument(
        "--libretranslate", action="store_true", help="install it once, and measure it, too"
    )
    parser.add_argument("--port", type=int, default=8765)
    return parser.parse_args()


def main() -> None:
    options, start = parse_options(), time.monotonic()
    machine = describe_machine()
    print(machine, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        if options.run:
            runs = {"run": options.run}
        else:
            recipes = RECIPES[options.size]
            runs = {name: train_run(recipes[name], Path(folder) / name) for name in options.model}
        exported = Path(folder) / "ct2"
        if "Transformer" in runs and ct2.is_installed():
            export_run(runs["Transformer"], "ct2", exported)
        benchmark = Benchmark(options, runs)
        systems = list_systems(runs, options.device, options.backend, exported)
        for _, group in groupby(systems, key=attrgetter("model", "device", "backend")):
            benchmark.measure(list(group))
        if options.libretranslate:
            benchmark.measure_libretranslate(Path(folder))
    result = {
        **{"machine": machine, "server_cores": options.server_cores, "size": options.size},
        **{"minutes": round((time.monotonic() - start) / 60, 1)},
        **{"rows": benchmark.rows, "comparisons": benchmark.compare()},
    }
    print("\n" + json.dumps(result))


if __name__ == "__main__":
    main()
