"""Models that score message pairs, one file per paper."""
