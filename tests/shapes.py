"""The type checker behind `--shapes`."""

from beartype import BeartypeConf, beartype

# An int may stand where a float is asked for, as type checkers have it.
checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
