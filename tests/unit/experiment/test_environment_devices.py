import torch

from heedful.experiment.environment import configure_backends


def test_nothing_is_changed_for_a_cpu():
    before = torch.get_float32_matmul_precision(), torch.backends.cuda.cudnn_sdp_enabled()
    configure_backends(torch.device("cpu"))
    assert (torch.get_float32_matmul_precision(), torch.backends.cuda.cudnn_sdp_enabled()) == before


def test_kernels_are_chosen_for_a_gpu():
    before = torch.get_float32_matmul_precision(), torch.backends.cuda.cudnn_sdp_enabled()
    try:
        configure_backends(torch.device("cuda"))
        assert torch.get_float32_matmul_precision() == "high"
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cuda.enable_cudnn_sdp(before[1])
