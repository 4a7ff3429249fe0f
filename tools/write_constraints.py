"""Write constraints.txt from what pip resolved: `pip install --dry-run --report FILE ...`."""

import json
import sys
from pathlib import Path

CONSTRAINTS = Path("constraints.txt")


def main() -> None:
    """Pin every resolved version, keeping the comment at the head of the file."""
    report = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = [
        each["metadata"] for each in report["install"] if each["metadata"]["name"] != "heedful"
    ]
    found.sort(key=lambda each: each["name"].lower())
    pins = [f"{each['name']}=={each['version'].partition('+')[0]}" for each in found]
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    comment = [line for line in lines if line.startswith("#")]
    text = "\n".join([*comment, *pins]) + "\n"
    CONSTRAINTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
