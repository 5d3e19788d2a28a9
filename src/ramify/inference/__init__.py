"""Evaluation of trained models and vectors of whole corpora."""
