"""Seq2seq: to be described."""
