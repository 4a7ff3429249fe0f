"""Peers: other systems, each in an environment of its own, asked to do what heedful is asked."""
