"""Text models, one file per paper."""
