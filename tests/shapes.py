"""The type checker behind `--shapes`."""

from beartype import BeartypeConf, beartype

# An int may stand for a float, as in type checkers.
checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
