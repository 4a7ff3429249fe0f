"""Comparison: which of several systems is better, at which cost?"""
