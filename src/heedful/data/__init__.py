"""Data: from files and built-in corpora to batches of tokens."""
