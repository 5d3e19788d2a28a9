"""The run of comment trees: its settings, its evaluation, its report."""
