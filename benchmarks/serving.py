"""Requests per second, latency and memory of `heedful serve`, batched and not, and of CTranslate2.

The last is a plain FastAPI route that translates each request by itself. Servers take turns, each
in a process of its own; the clients are threads of this one and keep their connections.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from random import Random

import heedful
from benchmarks.harness import Table, describe_machine
from heedful.client import ServerError

NUM_CLIENTS = (1, 8, 32)
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PLAIN_SERVER = """
import sys
import fastapi, uvicorn, heedful

translator = heedful.load(sys.argv[1], device="cpu", settings=["decoding.backend=ct2"])
app = fastapi.FastAPI()

@app.post("/v1/translate")
def translate(body: dict) -> dict:
    return {"results": [{"text": text} for text in translator.predict_texts(body["inputs"])]}

@app.get("/readyz")
def ready() -> dict:
    return {}

list(translator.predict_texts(["a b c"]))
uvicorn.run(app, port=int(sys.argv[2]), log_level="warning")
"""


@contextmanager
def running(command: Sequence[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the end of the block."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            client = heedful.Client(f"http://127.0.0.1:{port}")
            while not client.is_ready():
                if process.poll() is not None:
                    raise RuntimeError(f"{command[0]} ended with {process.returncode}")
                time.sleep(0.2)
            yield process
        finally:
            process.terminate()


def measure(port: int, texts: Sequence[str], num_clients: int, seconds: float) -> list[float]:
    """Return the seconds of every request of clients that send one after another."""
    end = time.monotonic() + seconds

    def send(number: int) -> list[float]:
        client, times = heedful.Client(f"http://127.0.0.1:{port}"), []
        for text in cycle(Random(number).sample(texts, len(texts))):
            start = time.monotonic()
            if start > end:
                break
            client.predict("translate", [text], text_only=True)
            times.append(time.monotonic() - start)
        client.close()
        return times

    with ThreadPoolExecutor(num_clients) as pool:
        return [time_ for times in pool.map(send, range(num_clients)) for time_ in times]


def memory_mb(pid: int) -> list[int]:
    """Return the memory in MB of a process and of all that it started."""
    statuses = [path.read_text().rsplit(")", 1) for path in Path("/proc").glob("[0-9]*/stat")]
    parents = {int(name.split()[0]): int(rest.split()[1]) for name, rest in statuses}
    pids = [pid]
    for process in pids:
        pids += [child for child, parent in parents.items() if parent == process]
    pages = [int(Path(f"/proc/{process}/statm").read_text().split()[1]) for process in pids]
    return [count * PAGE_BYTES // 2**20 for count in pages]


def servers(run: Path, port: int) -> dict[str, list[str]]:
    """Return the commands that start the servers."""
    serve = [sys.executable, "-m", "heedful", "serve", str(run), "--port", str(port), "--quiet"]
    return {
        "heedful": serve,
        "heedful --max-batch 1": [*serve, "--max-batch", "1"],
        "heedful, torch": [*serve, "--backend", "torch"],
        "CTranslate2, plain route": [sys.executable, "-c", PLAIN_SERVER, str(run), str(port)],
    }


def add_rows(
    table: Table, name: str, texts: Sequence[str], *, port: int, seconds: float, pid: int
) -> None:
    """Measure a server with each number of clients."""
    measure(port, texts, max(NUM_CLIENTS), min(2.0, seconds))  # warm up
    for num_clients in NUM_CLIENTS:
        times = measure(port, texts, num_clients, seconds)
        percentiles = statistics.quantiles(times, n=100, method="inclusive")
        cells = [
            f"{len(times) / seconds:,.1f}",
            *(f"{percentiles[p] * 1000:,.0f}" for p in (49, 98)),
        ]
        table.add(name, str(num_clients), *cells, " + ".join(map(str, memory_mb(pid))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, help="a translator; default: reverse-tiny is trained")
    parser.add_argument("--texts", type=Path, help="lines; default: letters")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--port", type=int, default=8765)
    arguments = parser.parse_args()
    print(describe_machine())
    with tempfile.TemporaryDirectory() as folder:
        run = arguments.run or Path(folder) / "run"
        if arguments.run is None:
            heedful.train("reverse-tiny", run)
        random = Random(0)
        letters = [" ".join(random.choices("abcdefgh", k=random.randint(3, 8))) for _ in range(200)]
        texts = arguments.texts.read_text().splitlines() if arguments.texts else letters
        table = Table("server", "clients", "requests/s", "p50 ms", "p99 ms", "memory, MB")
        for name, command in servers(run, arguments.port).items():
            try:
                with running(command, arguments.port) as process:
                    options = {"port": arguments.port, "seconds": arguments.seconds}
                    add_rows(table, name, texts, **options, pid=process.pid)
            except (RuntimeError, ServerError) as error:
                print(f"{name} is left out: {error}")


if __name__ == "__main__":
    main()
