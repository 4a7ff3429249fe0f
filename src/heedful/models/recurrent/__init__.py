"""Recurrent: to be described."""
