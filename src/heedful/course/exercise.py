"""An exercise: its solution with blanks, random inputs, and typical wrong answers.

A solution is a file in `solutions/`. Lines that end in `# blank` are the blanks of the starter. A
mutant is the solution with one part replaced, so solution, starter and mutants have one source.
Invariant, tested over seeds: the solution passes, and each mutant gets its own feedback.
"""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

SOLUTIONS = Path(__file__).with_name("solutions")
Inputs = dict[str, Any]
Draw = Callable[[torch.Generator, int], Inputs]
_BLANK = re.compile(r"^( *(?:return|[^=\n]*?[^=!<>\n]=(?!=))).*?  # blank$", re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """A typical wrong answer: a part of the solution, what stands in its place, what is told."""

    old: str
    new: str
    feedback: str
    is_seen: Callable[[Any], bool] | None = None
    """Recognizes the outputs of an experiment, which is not repeated for every mutant."""


@dataclass(frozen=True)
class Exercise:
    """An exercise, by number: session and place in it."""

    number: str
    function: str
    """What the answer defines; `ANSWER`, a literal, on paper."""
    draw: Draw
    """Returns the inputs of an instance; later instances are larger."""
    mutants: tuple[Mutant, ...]
    probe: Callable[..., Any] | None = None
    """Calls the functions of an answer with the inputs; by default the function alone."""
    accept: Callable[[Any, Inputs], str | None] | None = None
    """Says what is wrong with outputs, where more than one answer is right."""
    tolerance: float = 1e-8
    seconds: int = 10
    """Time of the processor that an answer may take."""
    num_instances: int = 20
    runs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Recipes and settings of the runs whose scores are the answer."""
    metric: str | None = None
    """Which score of the runs; by default the first that `evaluate` has."""

    @property
    def is_paper(self) -> bool:
        """Whether the answer is a literal."""
        return self.function == "ANSWER"

    @property
    def name(self) -> str:
        """The file of the exercise, without its ending."""
        session, place = self.number.split(".")
        return f"s{session}/e{place}"

    @property
    def solution(self) -> str:
        """The text of the solution."""
        return (SOLUTIONS / f"{self.name}.py").read_text(encoding="utf-8")

    @property
    def title(self) -> str:
        """The first line of the solution's docstring."""
        return str(ast.get_docstring(ast.parse(self.solution))).splitlines()[0]

    def instances(self, seed: int) -> list[Inputs]:
        """Return random inputs."""
        generator = torch.Generator().manual_seed(seed)
        return [self.draw(generator, index) for index in range(self.num_instances)]

    def mutated(self, mutant: Mutant) -> str:
        """Return the text of a wrong answer."""
        assert mutant.old in self.solution, (self.number, mutant.old)
        return self.solution.replace(mutant.old, mutant.new)

    def run(self, answer: Any, inputs: Inputs) -> Any:
        """Return the outputs of an answer, a namespace, for the inputs of an instance."""
        copied = {name: _copy(value) for name, value in inputs.items()}
        if self.probe is not None:
            return self.probe(answer, **copied)
        return getattr(answer, "answer" if self.is_paper else self.function)(**copied)

    def starter(self, user: str) -> str:
        """Return what a student begins with; numbers on paper depend on the name of the user."""
        if not self.is_paper:
            return f"# exercise {self.number}\n" + make_blanks(self.solution)
        if self.runs:
            blanks = ", ".join(["___"] * len(self.runs))
            answer = f'ANSWER = {{"runs": [{blanks}], "scores": [{blanks}]}}'
            docstring = ast.get_docstring(ast.parse(self.solution))
            return f'# exercise {self.number}\n"""{docstring}\n"""\n{answer}\n'
        inputs = self.instances(paper_seed(user))[0]
        keys = ", ".join(f'"{key}": ___' for key in self.run(load_text(self.solution), inputs))
        docstring = ast.get_docstring(ast.parse(self.solution))
        numbers = "".join(f'    "{name}": {value!r},\n' for name, value in inputs.items())
        lines = [f"# exercise {self.number}", f'"""{docstring}\n"""', f'ID = "{user}"']
        return "\n".join([*lines, f"GIVEN = {{\n{numbers}}}", f"ANSWER = {{{keys}}}"]) + "\n"


def make_blanks(program: str) -> str:
    """Replace what lines that end in `# blank` assign or return."""
    return _BLANK.sub(r"\1 ___", program)


def paper_seed(user: str) -> int:
    """Return a seed by the name of a user."""
    return int.from_bytes(user.encode(), "big") % (2**31 - 1)


def load_text(text: str, name: str = "answer") -> SimpleNamespace:
    """Return the names that a program defines."""
    namespace: dict[str, Any] = {"__name__": name}
    exec(compile(text, f"{name}.py", "exec"), namespace)
    return SimpleNamespace(**namespace)


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value
