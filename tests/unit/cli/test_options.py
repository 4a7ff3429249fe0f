import pytest

from heedful.cli.options import parse_bytes
from heedful.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("512", 512),
        ("2k", 2048),
        ("1.5 KiB", 1536),
        ("512MiB", 2**29),
        ("4GiB", 2**32),
        ("4gb", 2**32),
        ("1T", 2**40),
    ],
)
def test_memory_is_read_as_people_write_it(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "much", "4 XB", "-1g"])
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(ConfigError) as caught:
        parse_bytes(text)
    assert str(caught.value) == (f"{text}: not an amount of memory\n  write it as 512MiB or 4GiB")
