"""The run of packed text: its settings, its evaluation, its report."""
