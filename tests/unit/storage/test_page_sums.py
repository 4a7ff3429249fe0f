"""Page sums detect what disks do to bytes."""

import hashlib
import random

from hypothesis import given
from hypothesis import strategies as st

from heedful.storage.manifest import hash_buffers, hash_file_pages

PAGE = 4096


def reference_hash(contents):
    """The definition, one word at a time."""
    whole = len(contents) // PAGE * PAGE
    digest = hashlib.sha256()
    for start in range(0, whole, PAGE):
        words = [contents[start + offset : start + offset + 8] for offset in range(0, PAGE, 8)]
        total = sum(int.from_bytes(word, "little") for word in words) % 2**64
        digest.update(total.to_bytes(8, "little"))
    digest.update(contents[whole:])
    return digest.hexdigest()


@given(st.lists(st.integers(0, 3 * PAGE), max_size=6), st.randoms(use_true_random=False))
def test_page_hash_does_not_depend_on_chunking(sizes, rng):
    buffers = [rng.randbytes(size) for size in sizes]
    assert hash_buffers(buffers) == reference_hash(b"".join(buffers))


def test_hash_file_pages_same_as_hash_buffers(tmp_path):
    contents = random.Random(0).randbytes(10 * PAGE + 7)
    (tmp_path / "file").write_bytes(contents)
    assert hash_file_pages(tmp_path / "file") == hash_buffers([contents])


@given(st.binary(min_size=1, max_size=3 * PAGE), st.data())
def test_flipped_byte_is_detected(contents, data):
    position = data.draw(st.integers(0, len(contents) - 1))
    changed = bytearray(contents)
    changed[position] ^= data.draw(st.integers(1, 255))
    assert hash_buffers([bytes(changed)]) != hash_buffers([contents])


def test_missing_stale_or_misplaced_pages_detected():
    first, second, third = (random.Random(seed).randbytes(PAGE) for seed in range(3))
    expected = hash_buffers([first, second, third])
    for other in (
        [first, third],
        [first, bytes(PAGE), third],
        [first, first, third],
        [second, first, third],
        [first, second, third, bytes(PAGE)],
        [first, second, third[:-1]],
    ):
        assert hash_buffers(other) != expected
