"""The choices of attention, as a configuration names them."""
