"""The one exception for mistakes that a user can mend: the command line prints it without a traceback."""


class RamifyError(Exception):
    """What was wrong, where (file, line, node), and what to do about it."""


class CannotError(RamifyError, AttributeError):
    """A model was asked for what its kind cannot do; to `hasattr` it is an attribute that is not there."""
