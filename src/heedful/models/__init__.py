"""Encoders, decoders and whole models.

Importing the package registers the kernels of the ops that models are made of.
"""

import heedful.acceleration.kernels  # noqa: F401
