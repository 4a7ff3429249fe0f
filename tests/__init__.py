"""Tests; a package, since others install one of this name (argos-translate-lt)."""
