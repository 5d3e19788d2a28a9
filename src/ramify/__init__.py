"""Ramify: language models for text that branches."""

__version__ = "0.1.0"
