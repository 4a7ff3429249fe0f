import torch

from heedful.training.memory import peak_memory


def test_the_peak_grows_with_what_is_held_and_never_falls():
    before = peak_memory(torch.device("cpu"))
    held = torch.ones(before // 4 + 25_000_000)  # 4 bytes each: more than all there was, and 100 MB
    grown = peak_memory(torch.device("cpu"))
    assert grown >= before + 100_000_000
    del held
    assert peak_memory(torch.device("cpu")) >= grown
