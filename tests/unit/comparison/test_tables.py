import csv
import io
import re

from heedful.comparison.results import Failure
from heedful.comparison.tables import make_columns, to_csv, to_latex, to_markdown
from tests.unit.comparison.format_examples import comparison, cost, score, system

HOSTILE = r"a|b_c*d & <i>50% #1$ \x{y}~^`[z]"


def several():
    return comparison(
        system("dot", score(20.25, deviation=0.5), num_runs=2),
        system("additive", score(21.5, deviation=0.25, p=0.01), training_costs=cost(flops=None)),
        failures=[Failure("bad", "runs/bad-0", "no number")],
        budget="2 minutes",
    )


def test_csv_reads_back_exactly():
    result = several()
    rows = list(csv.DictReader(io.StringIO(to_csv(result))))
    assert [row["system"] for row in rows] == ["dot", "additive"]
    for row, expected in zip(rows, result.systems, strict=True):
        (bleu,) = expected.scores
        assert int(row["runs"]) == len(expected.runs)
        assert float(row["BLEU"]) == bleu.stats.mean
        assert float(row["BLEU std"]) == bleu.stats.std
        assert float(row["seconds"]) == expected.cost.training_seconds.mean
        assert float(row["memory"]) == expected.cost.peak_memory.mean
        assert float(row["steps"]) == expected.cost.steps.mean
        assert int(row["parameters"]) == expected.cost.num_parameters
        assert float(row["sentences/s"]) == expected.cost.sentences_per_second.mean
        assert float(row["tokens/s"]) == expected.cost.tokens_per_second.mean
    assert [row["training FLOPs"] for row in rows] == ["230000000000000.0", ""]
    assert [row["BLEU p"] for row in rows] == ["", "0.01"]
    assert {row["seconds std"] for row in rows} == {""}


def test_csv_quotes_any_name():
    (row,) = csv.DictReader(io.StringIO(to_csv(comparison(system('a,"b"\nc', score(1.0))))))
    assert row["system"] == 'a,"b"\nc'


def test_markdown_has_every_column_and_note():
    result = several()
    table, _, below = to_markdown(result).partition("\n\n")
    lines = [line.strip("| ").split(" | ") for line in table.splitlines()]
    assert lines[0] == ["system", *(column.name for column in make_columns(result))]
    assert lines[1] == ["---", *["---:"] * len(make_columns(result))]
    assert {len(line) for line in lines} == {1 + len(make_columns(result))}
    assert lines[2][:3] == ["dot", "20.25 +- 0.50", "2.3e14"]
    assert lines[3][:3] == ["additive", r"**21.50 +- 0.25**\*", "-"]
    assert below.splitlines() == [
        "- tested on 3 pairs of a and b",
        "- budget of each run: 2 minutes",
        "- means +- standard deviations of 1 to 2 runs",
        r"- \* differs from dot with p \< 0.05, by approximate randomization (10000 trials)",
        "- failed: bad (runs/bad-0): no number",
    ]


def test_markdown_escapes_any_name():
    table, _, _ = to_markdown(comparison(system(HOSTILE, score(1.0)))).partition("\n\n")
    header, _, row = table.splitlines()
    bare = re.sub(r"\\.", "", row)  # what is left when signs that were escaped are gone
    assert bare.count("|") == header.count("|")
    assert not set("<>*_`[]#&~") & set(bare.split("|")[1])
    assert re.sub(r"\\(.)", r"\1", row).startswith(f"| {HOSTILE} | ")


def test_latex_table_uses_booktabs():
    lines = to_latex(several()).splitlines()
    assert lines[0] == r"% needs \usepackage{booktabs}"
    assert all(line.startswith("% ") for line in lines[:6])
    assert lines[6:8] == [r"\begin{tabular}{lrrrrrrr}", r"\toprule"]
    assert lines[8].startswith("system & BLEU & training FLOPs & seconds & memory & ")
    assert lines[9] == r"\midrule"
    assert lines[10].startswith(r"dot & 20.25 $\pm$ 0.50 & $2.3 \cdot 10^{14}$ & 120 & 512 MiB & ")
    assert lines[11].startswith(r"additive & \textbf{21.50 $\pm$ 0.25}$^{*}$ & -- & ")
    assert lines[12:] == [r"\bottomrule", r"\end{tabular}"]


def test_latex_power_of_ten_can_be_bold():
    systems = [
        system("a", score(1.0)),
        system("b", score(1.0), training_costs=cost(flops=9e13)),
    ]
    *_, row, _, _ = to_latex(comparison(*systems)).splitlines()
    assert r" & $\mathbf{9.0 \cdot 10^{13}}$ & " in row


def test_latex_escapes_any_name():
    result = to_latex(comparison(system(HOSTILE, score(1.0))))
    row = result.splitlines()[-3]
    assert row.startswith(
        r"a\textbar{}b\_c*d \& \textless{}i\textgreater{}50\% \#1\$ "
        r"\textbackslash{}x\{y\}\textasciitilde{}\textasciicircum{}`[z] & "
    )
    assert len(re.findall(r"(?<!\\)&", row)) == len(
        make_columns(comparison(system("a", score(1.0))))
    )


def test_latex_failure_of_several_lines_stays_a_comment():
    failure = Failure("bad", "runs/bad-0", "one\n\\input{two}")
    result = to_latex(comparison(system("a", score(1.0)), failures=[failure]))
    assert r"% failed: bad (runs/bad-0): one \input{two}" in result.splitlines()
