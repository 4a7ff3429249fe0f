"""The glimpse sensor and the window of DRAW against loops over pixels and hand computation."""

import math

import pytest
import torch

from heedful.layers.glimpses import GaussianWindow, GlimpseSensor, WindowParameters


def read_pixel(image, row, column):
    inside = 0 <= row < image.size(0) and 0 <= column < image.size(1)
    return image[row, column].item() if inside else 0.0


def slow_glimpse(image, location, glimpse_size, num_scales):
    """Cut every patch pixel by pixel and average blocks of it."""
    values = []
    size = image.size(0)
    largest = glimpse_size * 2 ** (num_scales - 1)
    for scale in range(num_scales):
        block = 2**scale
        difference = largest - glimpse_size * block
        # Of even difference, the corner of the largest; of odd difference, its own.
        cut, margin = (glimpse_size * block, 0) if difference % 2 else (largest, difference // 2)
        corner = [round((each + 1) / 2 * size - cut / 2) for each in location.tolist()]
        for row in range(glimpse_size):
            for column in range(glimpse_size):
                total = 0.0
                for i in range(block):
                    for j in range(block):
                        y = corner[0] + margin + row * block + i
                        x = corner[1] + margin + column * block + j
                        total += read_pixel(image, y, x)
                values.append(total / block**2)
    return torch.tensor(values, dtype=image.dtype)


@pytest.mark.parametrize(
    ("glimpse_size", "num_scales"), [(1, 1), (3, 1), (4, 2), (2, 3), (3, 2), (5, 3)]
)
def test_sensor_same_as_a_loop_over_pixels(glimpse_size, num_scales):
    torch.manual_seed(0)
    images = torch.rand(40, 9, 9, dtype=torch.float64)
    locations = 2 * torch.rand(40, 2, dtype=torch.float64) - 1
    corners = [[-1, -1], [1, 1], [-1, 1], [0, 0]]
    locations[:4] = torch.tensor(corners, dtype=torch.float64)
    sensor = GlimpseSensor(9, glimpse_size, num_scales)
    actual = sensor(sensor.prepare(images), locations)
    for image, location, values in zip(images, locations, actual, strict=True):
        expected = slow_glimpse(image, location, glimpse_size, num_scales)
        torch.testing.assert_close(values, expected)


@pytest.mark.parametrize("glimpse_size", [1, 2, 5, 8])
def test_every_scale_is_centered_within_half_a_pixel(glimpse_size):
    sensor = GlimpseSensor(29, glimpse_size, 3)
    locations = torch.linspace(-1, 1, 201, dtype=torch.float64)[:, None].expand(-1, 2)
    top, left, height, width = sensor.boxes(locations).unbind(dim=-1)  # (201, 3) each
    middles = torch.stack([top + height / 2, left + width / 2], dim=-1)
    differences = middles - ((locations + 1) / 2 * 29).unsqueeze(1)
    assert differences.abs().max() <= 0.5 + 1e-9


def test_window_same_as_the_formula():
    torch.manual_seed(0)
    window = GaussianWindow(3, image_size=7, window_size=4).double()
    images, hidden = torch.rand(2, 7, 7).double(), torch.randn(2, 3).double()
    actual = window(images, window.parameters_of(hidden)).view(2, 4, 4)
    raw = window.projection(hidden).tolist()
    for index, (g_y, g_x, log_variance, log_delta, log_gamma) in enumerate(raw):
        centers = [(7 + 1) / 2 * (g + 1) for g in (g_y, g_x)]
        delta, variance = 6 / 3 * math.exp(log_delta), math.exp(log_variance)
        bank = []
        for center in centers:
            rows = []
            for i in range(1, 5):
                mean = center + (i - 4 / 2 - 0.5) * delta
                weights = [math.exp(-((a - mean) ** 2) / (2 * variance)) for a in range(1, 8)]
                rows.append([weight / sum(weights) for weight in weights])
            bank.append(rows)
        for i in range(4):
            for j in range(4):
                total = sum(
                    bank[0][i][a] * images[index, a, b].item() * bank[1][j][b]
                    for a in range(7)
                    for b in range(7)
                )
                assert actual[index, i, j].item() == pytest.approx(math.exp(log_gamma) * total)


def test_window_is_differentiable_in_everything():
    torch.manual_seed(0)
    window = GaussianWindow(2, image_size=4, window_size=2).double()
    image = torch.rand(1, 4, 4).double().requires_grad_()
    hidden = torch.randn(1, 2).double().requires_grad_()
    read = lambda x, h: window(x, window.parameters_of(h))  # noqa: E731
    assert torch.autograd.gradcheck(read, (image, hidden))


def test_window_outside_of_the_image_reads_nothing():
    window = GaussianWindow(2, image_size=4, window_size=2)
    far = WindowParameters(*(torch.tensor([[value]]) for value in (0.0, 1.0, 0.1, 1.0)))
    far = far._replace(centers=torch.tensor([[500.0, 500.0]]))
    assert torch.equal(window(torch.ones(1, 4, 4), far), torch.zeros(1, 4))


def test_box_of_a_window_spans_the_outer_filters():
    window = GaussianWindow(2, image_size=9, window_size=3)
    parts = torch.tensor([[5.0, 5.0]]), *(torch.tensor([[value]]) for value in (2.0, 0.5, 1.0))
    box = window.boxes(WindowParameters(*parts))
    assert box.tolist() == [[[2.0, 2.0, 5.0, 5.0]]]  # filters at 2.5 .. 6.5, half a pixel more
