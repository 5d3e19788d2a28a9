"""Pipelines: the verbs that users ask of trained models, and their answers; searches, held-out loss, vectors of corpora."""
