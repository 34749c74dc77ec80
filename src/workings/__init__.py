"""Workings: post-training for mathematical reasoning."""

__version__ = "0.1.0"
