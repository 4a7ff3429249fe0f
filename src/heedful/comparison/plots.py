"""Plots: how good are systems, against what they cost and by what they are asked?

Between cost and quality stands the front (`front`): what is not on it is beaten twice over. Each
plot is a `Figure`, whose SVG document can stand alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from heedful.comparison.figures import Figure, line, missing, quality, quality_label, shown
from heedful.comparison.front import pareto_front, staircase
from heedful.comparison.results import Comparison, Over
from heedful.comparison.scatter import Dot, scatter
from heedful.inspection.axes import Stop
from heedful.inspection.chart import chart
from heedful.inspection.labels import visible_line
from heedful.inspection.run_curves import number
from heedful.inspection.scales import SMALLEST


def quality_against_operations(comparison: Comparison) -> Figure:
    """Draw what the training of each system took, and how good it became."""
    costs = [system.cost.operations for system in comparison.systems]
    return _trade(
        comparison,
        _dots(comparison, costs),
        cost=1,
        words=("training FLOPs", "FLOPs of training", "took fewer FLOPs of training"),
        reason="its quality or the FLOPs of its training are not known",
    )


def quality_against_speed(comparison: Comparison) -> Figure:
    """Draw how fast each system answers, and how well."""
    speeds = [system.cost.sentences_per_second for system in comparison.systems]
    return _trade(
        comparison,
        _dots(comparison, speeds),
        cost=-1,
        words=("speed", "sentences per second", "is faster"),
        reason="its quality or its speed is not known",
    )


def quality_by_length(comparison: Comparison) -> Figure:
    """Draw how quality changes with the length of the source."""
    title, groups = f"{quality(comparison)} against source length", length_groups(comparison)
    places = {name: place for place, name in enumerate(groups)}
    lines = [
        line(look, system, [(places[name], number(mean)) for name, _, mean in judged.by_length])
        for look, system, judged in shown(comparison)
    ]
    drawn = [each for each in lines if each.known]
    notes = list(
        missing(comparison, [each.name for each in drawn], "it was not measured by length")
    )
    if not drawn:
        return Figure(title, None, notes)
    svg = chart(
        drawn,
        title=title,
        x_label="words of the source; n: sentences of that length",
        y_label=quality_label(comparison),
        stops=[Stop(at, visible_line(name), f"n={groups[name]:,}") for name, at in places.items()],
    )
    return Figure(title, svg, ["Where n is small, a rise or a fall says little.", *notes])


def length_groups(comparison: Comparison) -> Mapping[str, int]:
    """The groups of lengths that any system was measured on, shortest first, and their sizes."""
    # Systems answered the same sentences: where one was measured less, its groups are among these.
    every = [system.judged[0].by_length for system in comparison.systems]
    return {
        name: size for groups in sorted(every, key=len, reverse=True) for name, size, _ in groups
    }


def _dots(comparison: Comparison, costs: Sequence[Over | None]) -> list[Dot]:
    """The systems of which both numbers are known; those across must have a logarithm."""
    return [
        Dot(system.name, across.mean, up.mean, look, _margin(across), _margin(up))
        for (look, system, judged), across in zip(shown(comparison), costs, strict=False)
        for up in [judged.over]
        if across and (number(across.mean) or 0) >= SMALLEST and number(up.mean) is not None
    ]


def _margin(over: Over) -> float:
    return number(over.deviation) or 0.0


def _trade(
    comparison: Comparison,
    dots: Sequence[Dot],
    *,
    cost: int,
    words: tuple[str, str, str],
    reason: str,
) -> Figure:
    """Draw dots and their front; `cost` is 1 where less of what is drawn across is better."""
    against, x_label, cheaper = words
    title = f"{quality(comparison)} against {against}"
    notes = list(missing(comparison, [dot.name for dot in dots], reason))
    if not dots:
        return Figure(title, None, notes)
    gain = 1 if comparison.systems[0].judged[0].better == "higher" else -1
    front = pareto_front([cost * dot.x for dot in dots], [gain * dot.y for dot in dots])
    best = [dots[index] for index in front]
    svg = scatter(
        dots,
        guide=staircase([(dot.x, dot.y) for dot in best]),
        title=title,
        x_label=x_label,
        y_label=quality_label(comparison),
        is_logarithmic=True,
    )
    return Figure(title, svg, [_front_note(best, cheaper), *_bars_note(dots), *notes])


def _front_note(best: Sequence[Dot], cheaper: str) -> str:
    names = ", ".join(visible_line(dot.name) for dot in best)
    dashed = "The dashed front: nothing" if len(best) > 1 else "Nothing"
    return f"{dashed} that {cheaper} is as good as {names}."


def _bars_note(dots: Sequence[Dot]) -> Iterator[str]:
    if any(dot.x_margin or dot.y_margin for dot in dots):
        yield "Bars: one standard deviation over the runs of a system, to either side."
    else:
        yield "No bars: the systems have one run each, or runs that do not differ."
