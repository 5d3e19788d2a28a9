"""Runs on labelled texts: their common parts, and one file per label task with its settings and data."""
