"""Evaluation: how good are a model's outputs?"""
