"""The run of models that predict texts token by token: its settings, its evaluation, its report."""
