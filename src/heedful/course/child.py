"""The process in which an answer runs: reads inputs, calls the answer, writes outputs.

It is started as `python -I child.py SOURCE FOLDER NUMBER` with limits on memory, files and time, so
that accidents in an answer do no harm; it is no defense against attacks. It compares nothing: the
process that started it does.
"""

import json
import math
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

MEMORY = 8 * 2**30  # bytes of addresses, of which importing torch takes two
FILE_SIZE = 64 * 2**20


def limit_resources(seconds: int) -> None:
    """Limit memory, files and the time of the processor from here on, where the system can."""
    with suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
        end = math.ceil(time.process_time()) + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (end, end + 2))


def pack(value: Any, tensors: dict[str, Any]) -> Any:
    """Return nested values as JSON; tensors are replaced by their names."""
    import torch

    if isinstance(value, torch.Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, dict):
        return {"dict": {str(key): pack(item, tensors) for key, item in value.items()}}
    if isinstance(value, list | tuple):
        return [pack(item, tensors) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return {"error": f"TypeError: {type(value).__name__} is not a tensor or a number"}


def unpack(value: Any, tensors: dict[str, Any]) -> Any:
    """Return the values that were packed."""
    if isinstance(value, list):
        return [unpack(item, tensors) for item in value]
    if isinstance(value, dict) and "tensor" in value:
        return tensors[value["tensor"]]
    if isinstance(value, dict) and "dict" in value:
        return {key: unpack(item, tensors) for key, item in value["dict"].items()}
    return value


def write_values(folder: Path, name: str, values: Any) -> None:
    """Write nested values to files without pickle; the JSON comes last."""
    from safetensors.torch import save_file

    tensors: dict[str, Any] = {}
    text = json.dumps(pack(values, tensors))
    save_file(tensors, folder / f"{name}.safetensors")
    (folder / f"{name}.tmp").write_text(text, encoding="utf-8")
    (folder / f"{name}.tmp").rename(folder / f"{name}.json")


def read_values(folder: Path, name: str) -> Any:
    """Load nested values."""
    from safetensors.torch import load_file

    packed = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return unpack(packed, load_file(folder / f"{name}.safetensors"))


def call(exercise: Any, answer: Any, inputs: Any) -> Any:
    """Return the outputs of an answer, or its error."""
    try:
        return exercise.run(answer, inputs)
    except Exception as error:
        return {
            "error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        }


def main() -> None:
    """Run an answer on the inputs in a folder."""
    source, folder, number = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    sys.path.insert(0, source)
    os.chdir(folder)
    import torch

    from heedful.course import registry
    from heedful.course.exercise import load_text

    torch.set_num_threads(1)
    exercise, instances = registry.find(number), read_values(folder, "inputs")
    limit_resources(exercise.seconds)
    try:
        answer: Any = load_text((folder / "answer.py").read_text(encoding="utf-8"))
    except Exception as error:
        outputs: Any = {"error": f"{type(error).__name__}: {error}"}
    else:
        outputs = [call(exercise, answer, inputs) for inputs in instances]
    write_values(folder, "outputs", outputs)


if __name__ == "__main__":
    main()
