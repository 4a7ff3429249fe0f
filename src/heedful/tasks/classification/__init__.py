"""Text classification: one label for a text, and the attention weights of its tokens."""
