"""Labels from columns of tables: texts (categories) or numbers, as the whole column decides."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from ramify.errors import RamifyError, shown
from ramify.readers.base import ReadCounts, bad_option, pc, read_before
from ramify.readers.columns import (
    KEEPABLE,
    LINE,
    MISSING,
    Columns,
    Missing,
    among,
    decoded,
    delimiter_at,
    present,
    strings,
    structured,
    without_decimals,
)

LabelType = Literal["auto", "category", "number"]

_NUMBER = re.compile(r"[+-]?(0|[1-9]\d*|\d+\.\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""Texts that are numbers. A number with leading zeros is an identifier."""
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)

_Convention = tuple[str, str]
"""The mark between thousands, or "", and the decimal mark or marks."""
_CONVENTIONS = (("", "."), (",", "."), ("", ","), (".", ","), ("'", "."), ("'", ","), (" ", ","), (" ", "."), ("", ",."))
"""The first one that fits all numbers of a column holds. With semicolons between columns, decimal commas precede thousands."""
_SPELLINGS = {
    (group, decimals): re.compile(
        rf"[+-]?(?:[1-9]\d{{0,2}}(?:{re.escape(group)}\d{{3}})+(?:[{decimals}]\d+)?|\d+[{decimals}]\d+)([eE][+-]?\d+)?",
        re.ASCII,
    )
    for group, decimals in _CONVENTIONS
}
_SAME_MARKS = str.maketrans({"\u00a0": " ", "\u2009": " ", "\u202f": " ", "’": "'"})
_MAX_DIGITS = 400
_EXACT = 1 << 53
"""Whole numbers below are exact as floats."""

_SEPARATORS = "|;,"
_MOST_TEXTS = 1000
"""Columns with more different texts are not searched for labels that are joined."""


def number(text: str) -> int | float | None:
    """The number that a text spells, or None."""
    if len(text) > _MAX_DIGITS or not _NUMBER.fullmatch(text):
        return None
    value = int(text) if _WHOLE.fullmatch(text) else float(text)
    return value if math.isfinite(value) else None


class LabelColumn:
    """Labels of one column, in any number of files, as JSON values.

    `see` is called for all values first. If all are numbers, labels are numbers (whole ones even where they are written as
    floats); if none is, they are strings (or true and false, where the file has such values). Lists and objects stay as they
    are. Raises `RamifyError` for a column with values of two of these kinds.

    The marks between thousands and before decimals are those of the first convention that all numbers of the column fit.
    `separator` parts each label into a list.
    """

    def __init__(self, name: str, label_type: LabelType, *, separator: str | None = None, missing: Missing = "marks") -> None:
        if separator is not None and not separator.strip():
            raise bad_option("separator", "the characters between the labels of a list", separator)
        self.type = label_type
        self._name, self._separator = name, separator
        self._missing: Missing = missing
        self._seen: dict[Literal["structure", "single", "number", "category"], tuple[pa.Scalar, str]] = {}
        """Kind of values -> the first one, and its place."""
        self._is_surveyed = self.has_semicolons = False
        self._fitting = dict.fromkeys(_CONVENTIONS, False)
        """Conventions that all numbers fit -> whether any of them has a fraction."""
        self._texts: set[str] = set()

    def see(self, values: pa.Array, lines: pa.Array, where: str) -> None:
        """Look at some values. `where` begins the description of a place, which ends with the number in `lines`."""
        self._is_surveyed = True
        values = self._plain(values)
        self._see_structure(values, lines, where)
        if pa.types.is_nested(values.type):
            return
        different = pc.unique(values).drop_null().to_pylist()
        if len(self._texts) <= _MOST_TEXTS:
            self._texts.update(value for value in different if isinstance(value, str))
        if self.type == "category":
            return
        numbers = [value for value in different if self._fits(value)]
        is_number = pc.is_in(values, pa.array(numbers, values.type))
        self._see("number", values, is_number, lines, where)
        self._see("category", values, pc.and_(values.is_valid(), pc.invert(is_number)), lines, where)
        if "number" in self._seen and "category" in self._seen:
            numeric, its_place = self._seen["number"]
            text, place = self._seen["category"]
            raise self._no_number(text.as_py(), place, f", but {numeric.as_py()!r} in {its_place} is")

    def _fits(self, value: Any) -> bool:
        """Whether a value is a number by a convention that all earlier numbers fit. Those that it does not fit are left out."""
        plain = _as_number(value)
        spelled = {convention: _by(convention, value, plain) for convention in self._fitting}
        fitting = {
            convention: self._fitting[convention] or not _is_whole(label)
            for convention, label in spelled.items()
            if label is not None
        }
        self._fitting = fitting or self._fitting
        return bool(fitting)

    def _see(self, kind: Any, values: pa.Array, mask: pa.Array, lines: pa.Array, where: str) -> None:
        if kind not in self._seen and (row := pc.index(mask, True).as_py()) >= 0:
            self._seen[kind] = values[row], f"{where} {lines[row].as_py()}"

    def _see_structure(self, values: pa.Array, lines: pa.Array, where: str) -> None:
        """Remember a list or an object, or a single value. Raises `RamifyError` for a column with both, and for lists and
        objects that are to be numbers."""
        kind = "structure" if pa.types.is_nested(values.type) else "single"
        self._see(kind, values, values.is_valid(), lines, where)
        if "structure" not in self._seen:
            return
        what = f"{self._seen['structure'][1]}: the label of the column {self._name!r} is a list or an object"
        if self.type == "number":
            raise RamifyError(f"{what}, not a number. Leave out --option label_type=number.")
        if "single" in self._seen:
            place = self._seen["single"][1]
            raise RamifyError(f"{what}, but that of {place} is not. Write lists or objects in all rows, or in none.")

    def _no_number(self, value: Any, place: str, other: str = "") -> RamifyError:
        mark = next((mark for mark in _SEPARATORS if mark in str(value)), "")
        return RamifyError(
            f"{place}: the label {shown(value)} of the column {self._name!r} is not a number{other}. Correct "
            f"{'one of them' if other else 'it'}, or read all labels as text with --option label_type=category"
            f"{f', or as lists with --option separator={mark!r}' if mark else ''}."
        )

    def json(self, values: pa.Array, lines: pa.Array, where: str, counts: ReadCounts) -> list[Any]:
        """The labels as JSON values; None for a missing one. Raises `RamifyError` for one that is not of the column's type."""
        if not self._is_surveyed:
            self.see(values, lines, where)
        self._say(values, lines, where, counts)
        values = self._plain(values)
        self._see_structure(values, lines, where)
        if pa.types.is_nested(values.type):
            return structured(values)
        if self.type == "category" or (self.type == "auto" and "number" not in self._seen):
            return values.to_pylist() if pa.types.is_boolean(values.type) else strings(values).to_pylist()
        items = values.to_pylist()
        labels = [self._number(value) for value in items]
        for place, (label, value) in enumerate(zip(labels, items, strict=True)):
            if label is None and value is not None:
                raise self._no_number(value, f"{where} {lines[place].as_py()}")
        has_fractions = self._fitting[self._convention]
        return [
            label if label is None else float(label) if has_fractions or not _is_whole(label) else int(label)
            for label in labels
        ]

    def _plain(self, values: pa.Array) -> pa.Array:
        values = _plain(values, self._missing)
        if self._separator is None or pa.types.is_nested(values.type):
            return values
        texts = strings(values).to_pylist()
        parts = [text and [part.strip() for part in text.split(self._separator) if part.strip()] for text in texts]
        return pa.array([part or None for part in parts], pa.list_(pa.large_string()))

    @property
    def _convention(self) -> _Convention:
        comma_first = ("", "."), ("", ",")
        return next((each for each in comma_first if self.has_semicolons and each in self._fitting), next(iter(self._fitting)))

    def _number(self, value: Any) -> int | float | None:
        """The number that a value is or spells."""
        return _by(self._convention, value, _as_number(value))

    def _say(self, values: pa.Array, lines: pa.Array, where: str, counts: ReadCounts) -> None:
        """Count the labels that are read as something else than they may be."""
        values = _flat(values)
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            return
        texts = pc.utf8_trim_whitespace(strings(values))
        remarks = {text: said for text in pc.unique(texts).drop_null().to_pylist() if (said := self._remark(text))}
        for row in pc.indices_nonzero(among(texts, list(remarks))).to_pylist():
            reason, remark = remarks[text := texts[row].as_py()]
            counts.repair(reason, f"{where} {lines[row].as_py()}: the label {shown(text)} {remark}")

    def _remark(self, text: str) -> tuple[str, str] | None:
        """The reason and the words with which a label is counted."""
        if text in MISSING[1:] and self._missing == "marks":
            return "missing_label", KEEPABLE
        if self._separator is not None:
            return None
        if self.type != "category" and (label := self._number(text)) is not None and label != number(text):
            others = ", and --option separator=, parts a list" if "," in text else ""
            return "number_with_comma", f"is read as the number {label}; --option label_type=category keeps it as text{others}"
        if joined := self._joined(text):
            return "joined_label", f"is one label, and {joined[0]!r} is another; --option separator={joined[1]!r} parts it"
        return None

    def _joined(self, text: str) -> tuple[str, str] | None:
        """Another label that is a part of a label, and the separator."""
        if len(self._texts) > _MOST_TEXTS:
            return None
        parts = ((part.strip(), mark) for mark in _SEPARATORS if mark in text for part in text.split(mark))
        return next((part for part in parts if part[0] in self._texts), None)


def survey(labels: LabelColumn, tables: Iterable[Columns], path: Path, where: str, delimiter: str | None) -> None:
    """Show all labels of a table to a column, so that it can decide on their type."""
    read_before(path)
    labels.has_semicolons |= (delimiter or delimiter_at(path)) == ";"
    for batch in tables:
        if "label" in batch:
            labels.see(decoded(batch["label"], path, 1, ReadCounts()), batch[LINE], where)


def _flat(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if isinstance(values, pa.DictionaryArray) else values


def _plain(values: pa.Array, missing: Missing = "marks") -> pa.Array:
    """The values without dictionaries and decimals, and with null for a missing one."""
    values = _flat(values)
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    if pa.types.is_floating(values.type):
        return pc.if_else(pc.is_nan(values), None, values)
    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type) or pa.types.is_nested(values.type):
        return values
    return present(pc.utf8_trim_whitespace(strings(values)), missing)


def _by(convention: _Convention, value: Any, plain: int | float | None) -> int | float | None:
    """The number that a value is, or that a text spells by a convention. `plain`: the one that it is without conventions."""
    group, decimals = convention
    if not isinstance(value, str) or (plain is not None and ("." not in value or "." in decimals)):
        return plain
    text = value.translate(_SAME_MARKS)
    return number(text.replace(group, "").replace(",", ".")) if _SPELLINGS[convention].fullmatch(text) else None


def _is_whole(value: float) -> bool:
    """Whether a number is a whole one, which may be written as a float."""
    return isinstance(value, int) or (value.is_integer() and abs(value) < _EXACT)


def _as_number(value: Any) -> int | float | None:
    if isinstance(value, str):
        return number(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) else None


def renamed(values: pa.Array, names: Mapping[str, Any], unlabelled: Sequence[str]) -> tuple[list[Any], list[int]]:
    """The names of classes in place of their numbers, and the rows of labels that are not classes, which remain as they are.

    Values in `unlabelled` and missing ones are None.
    """
    texts = without_decimals(strings(_plain(values))).to_pylist()
    labels = [None if text is None or text in unlabelled else names.get(text, text) for text in texts]
    known = {*names.values()}
    return labels, [row for row, label in enumerate(labels) if label is not None and label not in known] if names else []
