"""The version of heedful."""

VERSION = "0.1.0"
