"""Decoding: requests as token ids, decoding strategies, and translations with their attention."""
