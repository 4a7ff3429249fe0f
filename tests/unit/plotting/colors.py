"""Contrast of two colors, as the Web Content Accessibility Guidelines 2.2 define it."""


def linear_rgb(color):
    """Return the channels of a color such as #1e2a80 in proportion to light."""
    channels = [byte / 255 for byte in bytes.fromhex(color.removeprefix("#"))]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def luminance(color):
    shares = (0.2126, 0.7152, 0.0722)
    return sum(channel * share for channel, share in zip(linear_rgb(color), shares, strict=True))


def contrast(one, other):
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)
