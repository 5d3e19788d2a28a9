"""Corpora to batches: forests, views, samplers, collation."""
