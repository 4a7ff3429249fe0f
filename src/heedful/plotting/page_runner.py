"""Opening an exported page without a browser: Node.js runs the worker that the page carries.

Only the elements that show results are left out; the weights, their check, the interpreter, the
tokenizers and the search are those of the file.
"""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from heedful.errors import DataError, check

_PROGRAM = r"""
const { readFileSync } = require("node:fs");
const { gunzipSync } = require("node:zlib");
const { path, requests } = JSON.parse(readFileSync(0, "utf8"));
const page = readFileSync(path, "utf8");
const start = '<script type="application/json" id=';
const patternOf = (id) => new RegExp(`${start}"${id}">(.*?)</script>`, "s");
const textOf = (id) => page.match(patternOf(id))[1];
const worker = {};
const answers = new Map();
worker.postMessage = ({ id, ...answer }) => answers.get(id)(answer);
const script = gunzipSync(Buffer.from(JSON.parse(textOf("worker")), "base64")).toString();
new Function("self", script)(worker);
const ask = (method, parameters, id) => new Promise((resolve) => {
  const start = performance.now();
  answers.set(id, (answer) => resolve({ ...answer, seconds: (performance.now() - start) / 1000 }));
  worker.onmessage({ data: { id, method, parameters } });
});
(async () => {
  const parts = { model: textOf("model"), weights: textOf("weights") };
  const results = [await ask("open", { parts, digests: JSON.parse(textOf("digests")) }, 0)];
  for (const [method, parameters] of results[0].error ? [] : requests) {
    results.push(await ask(method, parameters, results.length));
  }
  console.log(JSON.stringify(results));
})();
"""
_FIRST_VERSION = 18  # has DecompressionStream


class PageRunner:
    """Node.js."""

    name = "Node.js"

    def __init__(self, command: str) -> None:
        self._command = command

    @classmethod
    def find(cls) -> Self | None:
        """Return a runner if Node.js is installed and new enough."""
        command = shutil.which("node")
        if command is None:
            return None
        done = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
        major = done.stdout.strip().removeprefix("v").split(".")[0]
        return cls(command) if major.isdigit() and int(major) >= _FIRST_VERSION else None

    def request(self, path: Path, requests: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Any]:
        """Open a page and return the answers to requests: methods and their parameters."""
        return [answer["result"] for answer in self.answer(path, requests)[1:]]

    def answer(
        self, path: Path, requests: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> list[dict[str, Any]]:
        """Return `result` and `seconds` of opening a page and of each request."""
        done = subprocess.run(
            [self._command, "-e", _PROGRAM],
            input=json.dumps({"path": str(path), "requests": requests}),
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        hint = "please report this run: nothing was written"
        errors = [line for line in done.stderr.splitlines() if "Error" in line]
        message = f"{self.name} cannot run the page: {'; '.join(errors) or done.stderr.strip()}"
        check(done.returncode == 0 and done.stdout, str(path), message, hint, DataError)
        answers: list[dict[str, Any]] = json.loads(done.stdout)
        for answer in answers:
            error = answer.get("error")
            check(error is None, str(path), f"the page reports: {error}", hint, DataError)
        return answers

    def outputs(
        self, path: Path, inputs: Sequence[Any], max_lengths: Sequence[int]
    ) -> list[dict[str, Any]]:
        """Return the output for each input, as numbers: greedy, without a length penalty."""
        options = {"beam_size": 1, "length_penalty": {"alpha": 0, "formula": "gnmt"}}
        parameters = {"inputs": inputs, "maxLengths": max_lengths, "options": options}
        [outputs] = self.request(path, [("outputs", parameters)])
        return outputs
