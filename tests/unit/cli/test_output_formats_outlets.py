import sys
from pathlib import Path

import pytest

from heedful.cli.output_formats import check_distinct_files, open_outputs
from heedful.errors import ConfigError, DiskFullError, StorageError


def test_parts_go_where_they_belong_and_are_there_at_once(capsysbinary, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    with open_outputs([one, other]) as write:
        write(["a\n", "1\n", "x\n"])
        assert (one.read_text(), other.read_text()) == ("1\n", "x\n")
        assert capsysbinary.readouterr().out == b"a\n"
        write(["\u2028\u00e9\n", "2\n", ""])
    assert (one.read_text(), other.read_text()) == ("1\n2\n", "x\n")
    assert capsysbinary.readouterr().out == "\u2028\u00e9\n".encode()


def test_a_folder_that_is_not_there_is_explained(tmp_path):
    path = tmp_path / "absent" / "file"
    with pytest.raises(StorageError) as caught, open_outputs([path]):
        pass
    assert str(caught.value) == (
        f"{path}: cannot be written (no such file or directory); what was saved before is "
        "untouched\n  check the disk and the folder"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_is_explained():
    with (
        pytest.raises(DiskFullError, match="/dev/full: cannot be written"),
        open_outputs([Path("/dev/full")]) as write,
    ):
        write(["", "1\n"])


def test_an_error_of_the_work_is_not_taken_for_one_of_writing(tmp_path):
    with pytest.raises(FileNotFoundError), open_outputs([tmp_path / "file"]):
        raise FileNotFoundError
    assert sys.stdout.writable()


def test_no_file_is_written_twice_or_over_what_is_read(tmp_path):
    read = tmp_path / "in"
    read.write_text("a\n")
    new = tmp_path / "out"
    check_distinct_files({"--save-scores": new}, ["-", str(read)])
    with pytest.raises(ConfigError) as caught:
        check_distinct_files({"--save-scores": tmp_path / "." / "in"}, [str(read)])
    assert str(caught.value) == f"--save-scores: {read} is read ({read})\n  name another file"
    with pytest.raises(ConfigError) as caught:
        check_distinct_files({"--save-scores": new, "--tree": new}, [])
    assert str(caught.value) == (
        f"--tree: {new} is written by --save-scores already\n  name another file"
    )


def test_what_is_no_file_may_be_written_often():
    check_distinct_files(
        {"--save-scores": Path("/dev/null"), "--tree": Path("/dev/null")}, ["/dev/null"]
    )
