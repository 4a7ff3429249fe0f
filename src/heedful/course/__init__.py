"""A course of five sessions: exercises, their solutions and typical mistakes, and a checker."""
