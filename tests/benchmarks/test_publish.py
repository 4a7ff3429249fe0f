"""Results in documents: tables are read, pivoted and filled in; documents match the results."""

from benchmarks.publish import KINDS, contents, fill, format_table, read_tables, rows_of

PRINTED = """machine
| work | system | sentences/s | heedful is faster by |
| --- | --- | --- | --- |
| beam 5 | heedful (1.0M) | 1,200 (1,100-1,300) |  |
a warning between rows
| beam 5 | peer (1.1M) | 400 (390-410) | 3.00 (2.90-3.10) |

| limit of the device | value |
| --- | --- |
| copy | 4.2 (4.1-4.3) |
"""
SHOWN = """| work | heedful | peer |
|---|---|---|
| beam 5 | 1,200 | 400 (x 3.00) |"""


def test_printed_tables_load_and_pivoted():
    tables = read_tables(PRINTED)
    assert [len(table) for table in tables] == [2, 1]
    assert format_table(rows_of(tables, KINDS["decode"]), KINDS["decode"]) == SHOWN


def test_tables_replace_what_is_between_marks():
    document = (
        "a\n<!-- results: decode -->\nold\n<!-- end -->\nb\n<!-- results: train -->\n<!-- end -->"
    )
    filled = fill(document, read_tables(PRINTED))
    assert filled == document.replace("old", SHOWN)
    assert fill(filled, read_tables(PRINTED)) == filled


def test_documents_show_the_results():
    for path, text in contents().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run python -m benchmarks.publish"
