"""Chat logs as columns, tokens and candidate parents."""
