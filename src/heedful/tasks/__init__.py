"""Tasks: what models are for."""
