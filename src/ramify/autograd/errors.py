"""The exception of the engine."""


class GraphError(ValueError):
    """Raised for an invalid graph, formula or value. The message names the node or the position."""
