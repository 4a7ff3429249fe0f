import pytest
import torch

from heedful.cli.translate import (
    WORKER_WINDOW,
    RequestChunk,
    TranslationJob,
    choose_num_processes,
    number_chunks,
)
from heedful.decoding.requests import Request
from heedful.decoding.word_alignment import ArgmaxAligner
from heedful.errors import ConfigError


def test_chunks_are_numbered_by_their_texts():
    assert list(number_chunks([["a", "b"], ["c"], ["d"]])) == [
        RequestChunk(1, ["a", "b"]),
        RequestChunk(3, ["c"]),
        RequestChunk(4, ["d"]),
    ]


def test_no_process_is_started_that_would_have_nothing_to_do():
    def count(asked, num_texts):
        return choose_num_processes(asked, device="cpu", num_texts=num_texts)

    assert count(1, None) == 1
    assert count(4, None) == 4
    assert [count(4, lines) for lines in (0, 1, WORKER_WINDOW)] == [1, 1, 1]
    assert count(4, WORKER_WINDOW + 1) == 2
    assert count(4, 100 * WORKER_WINDOW) == 4
    assert count(0, None) >= 1


@pytest.mark.parametrize("workers", [0, 2])
def test_a_gpu_is_not_shared(monkeypatch, workers):
    monkeypatch.setattr("heedful.runs.resolve_device", lambda name: torch.device("cuda"))
    with pytest.raises(ConfigError) as caught:
        choose_num_processes(workers, device="auto", num_texts=None)
    assert str(caught.value) == (
        "--workers: several processes cannot share the device 'cuda'\n"
        "  leave --workers out, or add --device cpu"
    )


def test_a_chunk_gives_the_same_lines_wherever_and_beside_whatever_it_is_translated(trained):
    sampling_setting = ("decoding.sampling={temperature: 3}", "decoding.n_best=2")
    job = TranslationJob(
        trained, ("text", "alignments"), ArgmaxAligner(), overrides=sampling_setting, device="cpu"
    )
    threads = torch.get_num_threads()
    shared = job.setup(is_shared=True)
    assert torch.get_num_threads() == 1
    torch.set_num_threads(threads)
    requests = [Request(text) for text in ("a b c d", "e", "", "f g h")]
    whole = shared(RequestChunk(1, requests))
    alone = job.setup(is_shared=False)
    parts = [alone(chunk) for chunk in number_chunks([requests[:1], requests[1:]])]
    assert whole.num_texts == sum(part.num_texts for part in parts) == 4
    assert whole.parts == [
        "".join(each) for each in zip(*(part.parts for part in parts), strict=True)
    ]
    assert whole.parts[0].count("\n") == whole.parts[1].count("\n") == 8
