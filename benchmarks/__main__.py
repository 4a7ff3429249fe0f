"""Run every benchmark, one after another, each in its own process."""

import subprocess
import sys

from benchmarks.harness import ROOT, parse_no_options

# Those with peers last: their environments are installed on first use.
NAMES = (
    *("overhead", "additive", "long_inputs", "recipes", "pipeline", "memory", "serving", "pages"),
    *("gpu", "threads", "dtypes", "training", "decoding"),
)


def main() -> None:
    parse_no_options(__doc__)
    for name in NAMES:
        print(f"\n## {name}: python -m benchmarks.{name}", flush=True)
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
