"""The run of streams of text: its settings, its evaluation, its report."""
