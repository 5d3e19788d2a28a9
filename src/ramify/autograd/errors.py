"""The one exception of the engine."""


class GraphError(ValueError):
    """What is wrong with a graph, and at which of its nodes."""
