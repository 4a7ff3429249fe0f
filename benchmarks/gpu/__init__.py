"""Training, decoding and attention on a GPU beside other systems, in one run."""
