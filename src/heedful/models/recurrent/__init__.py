"""Recurrent encoders and decoders, and where attention sits in a decoder (wirings)."""
