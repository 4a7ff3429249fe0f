from rich.console import Console

from heedful.cli.show import render_tree
from heedful.decoding.translation import SearchNode
from tests.unit.cli.test_output_formats_translations import translation

TEE, CORNER, BAR = "\u251c\u2500\u2500", "\u2514\u2500\u2500", "\u2502"


def drawn(tokens, tree):
    console = Console(width=200, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(render_tree(translation(" ".join(tokens), tree=tree)))
    return [line.rstrip() for line in capture.get().splitlines()]


TREE = [
    SearchNode(None, None, 0.0, 0.0, "went on"),
    SearchNode(0, "a", -0.1, -0.1, "went on"),
    SearchNode(0, "b", -2.0, -2.0, "pruned"),
    SearchNode(1, "c", -0.2, -0.3, "went on"),
    SearchNode(3, "[bold]", -0.5, -0.8, "went on"),
    SearchNode(3, "(end)", -1.0, -1.3, "ended"),
    SearchNode(4, "(end)", -0.1, -0.9, "ended"),
]


def test_stretches_stand_on_one_line_and_what_was_not_main_further_in():
    assert drawn(["a", "c", "[bold]"], TREE) == [
        "horto",
        f"{TEE} (start)",
        f"{BAR}   {CORNER} b -2.00  pruned at -2.00",
        f"{TEE} a -0.10  c -0.20",
        f"{BAR}   {CORNER} (end) -1.00  ended at -1.30",
        f"{CORNER} [bold] -0.50  (end) -0.10  ended at -0.90",
    ]


def test_a_search_without_choices_is_one_line():
    lines = drawn(
        ["b"],
        [
            TREE[0],
            SearchNode(0, "b", -2.0, -2.0, "went on"),
            SearchNode(1, "(end)", 0, -2, "ended"),
        ],
    )
    assert lines == ["horto", f"{CORNER} b -2.00  (end) 0.00  ended at -2.00"]


def bold(tokens):
    root = render_tree(translation(" ".join(tokens), tree=TREE))
    waiting, found = [*root.children], []
    while waiting:
        branch = waiting.pop()
        waiting += branch.children
        if branch.label.style == "bold":
            found.append(branch.label.plain.split()[0])
    return sorted(found)


def test_what_was_chosen_stands_out():
    assert bold(["a", "c", "[bold]"]) == ["(start)", "[bold]", "a"]
    assert bold(["a", "c"]) == ["(end)", "(start)", "a"]
    assert bold(["other"]) == []


def test_an_empty_text_has_nothing_to_draw():
    assert "nothing was searched for" in drawn([], None)[1]


def test_a_long_search_is_drawn_whole_however_often_it_had_to_choose():
    nodes = [SearchNode(None, None, 0.0, 0.0, "went on")]
    for depth in range(300):
        parent = max(0, 2 * depth - 1)
        nodes.append(SearchNode(parent, "a", -0.1, -0.1 * depth, "went on"))
        nodes.append(SearchNode(parent, "b", -2.0, -2.0, "pruned"))
    lines = drawn(["a"], nodes)
    assert sum("a -0.10" in line for line in lines) == 300
    assert sum("b -2.00" in line for line in lines) == 300
