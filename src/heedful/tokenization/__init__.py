"""Text: from characters to tokens and back."""
