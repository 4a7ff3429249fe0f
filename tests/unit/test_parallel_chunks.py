import threading
import time
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import DataError
from heedful.parallel import chunks_as_available, fixed_size_chunks

WAYS = pytest.mark.parametrize("cut", [fixed_size_chunks, chunks_as_available])
lists = st.lists(st.integers(), max_size=40)


@WAYS
@given(items=lists, most=st.integers(1, 7))
def test_everything_is_in_one_chunk_in_order_and_no_chunk_is_empty_or_too_large(cut, items, most):
    chunks = list(cut(items, most=most))
    assert [item for chunk in chunks for item in chunk] == items
    assert all(1 <= len(chunk) <= most for chunk in chunks)


@given(items=lists, most=st.integers(1, 7))
def test_chunks_of_a_file_are_full_but_for_the_last(items, most):
    chunks = list(fixed_size_chunks(items, max_size=most))
    assert all(len(chunk) == most for chunk in chunks[:-1])


@WAYS
def test_what_comes_before_an_error_is_given_first(cut):
    def lines():
        yield from "abc"
        raise DataError("here", "broken", "mend it")

    given, chunks = [], cut(lines(), most=2)
    with pytest.raises(DataError, match="here: broken"):
        given.extend(chunks)
    assert [line for chunk in given for line in chunk] == ["a", "b", "c"]


def test_a_line_that_has_arrived_does_not_wait_for_the_next():
    answered = threading.Event()

    def lines():
        yield "first"
        assert answered.wait(10), "the first line must be given before the second is there"
        yield "second"

    chunks = chunks_as_available(lines(), max_size=1024)
    assert next(chunks) == ["first"]
    answered.set()
    assert list(chunks) == [["second"]]


def test_lines_that_arrive_together_are_taken_together():
    chunks = chunks_as_available(iter(range(1000)), max_size=1024, max_wait=5)
    assert next(chunks) == list(range(1000))


def test_a_line_waits_no_longer_than_patience_however_often_others_come():
    def drops():
        for number in count():
            time.sleep(0.002)
            yield number

    began = time.monotonic()
    chunk = next(chunks_as_available(drops(), max_size=10**6, max_wait=0.1))
    assert 1 < len(chunk) <= 50
    assert time.monotonic() - began < 5


@WAYS
def test_no_more_is_read_than_is_needed_soon(cut):
    """An endless stream of which nobody takes more than one chunk is not read on for ever."""
    seen = []

    def no_end_error():
        for number in count():
            seen.append(number)
            yield number

    assert len(next(cut(no_end_error(), most=8))) <= 8
    time.sleep(0.1)
    assert len(seen) <= 8 + 8 + 1  # a chunk that was given, one that waits, one in hand
