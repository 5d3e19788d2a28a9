"""Chat logs as columns, words and candidate messages."""
