"""From scores to links and conversations, for whole logs and live channels."""
