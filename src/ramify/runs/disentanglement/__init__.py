"""The run of reply links: its settings, its evaluation, its report."""
