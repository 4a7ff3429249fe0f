"""Time of `import heedful` and `heedful --help`: medians of seven fresh processes."""

import statistics
import subprocess
import sys
import time

REPEATS = 7
TIMED_IMPORT = (
    "import time; start = time.perf_counter(); import heedful; "
    "print(time.perf_counter() - start); import sys; assert 'torch' not in sys.modules"
)


def median(measure) -> float:  # noqa: ANN001
    return statistics.median(measure() for _ in range(REPEATS))


def import_seconds() -> float:
    command = [sys.executable, "-c", TIMED_IMPORT]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def help_seconds() -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "heedful", "--help"], capture_output=True, check=True)
    return time.perf_counter() - start


def main() -> None:
    print(f"import heedful    {1000 * median(import_seconds):6.0f} ms   (at most 150)")
    print(f"heedful --help    {1000 * median(help_seconds):6.0f} ms   (at most 500)")


if __name__ == "__main__":
    main()
