"""The run of nested documents: its settings, its evaluation, its report."""
