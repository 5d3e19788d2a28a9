"""Exceptions for mistakes that the user can correct; the command line prints them without a traceback."""


class RamifyError(Exception):
    """Names the setting (or file, line, node), its value, the reason and the remedy."""


class CannotError(RamifyError, AttributeError):
    """A model does not support the requested operation. As an `AttributeError`, it makes `hasattr` return false."""
