"""Labels from columns of tables: texts (categories) or numbers, as the whole column decides."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from ramify.errors import RamifyError, shown
from ramify.readers.base import ReadCounts, pc, read_before
from ramify.readers.columns import LINE, Columns, decoded, strings, structured

LabelType = Literal["auto", "category", "number"]

NUMBER = r"[+-]?(0|[1-9]\d*|\d+\.\d*|\.\d+)([eE][+-]?\d+)?"
"""Texts that are numbers. A number with leading zeros is an identifier."""
_NUMBER = re.compile(NUMBER, re.ASCII)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_MAX_DIGITS = 400


def number(text: str) -> int | float | None:
    """The number that a text spells, or None."""
    if len(text) > _MAX_DIGITS or not _NUMBER.fullmatch(text):
        return None
    value = int(text) if _WHOLE.fullmatch(text) else float(text)
    return value if math.isfinite(value) else None


class LabelColumn:
    """Labels of one column, in any number of files, as JSON values.

    `see` is called for all values first, unless `label_type` is given. If all are numbers, labels are numbers; if none is, they
    are strings (or true and false, where the file has such values). Lists and objects stay as they are. Raises `RamifyError`
    for a column with values of two of these kinds.
    """

    def __init__(self, name: str, label_type: LabelType) -> None:
        self.type = label_type
        self._name = name
        # An example of each type: the value and its place.
        self._number: tuple[Any, str] | None = None
        self._category: tuple[Any, str] | None = None
        self._fraction = False
        self._structured = ""
        """The place of a list or an object."""
        self._single = ""
        """The place of another value."""

    def see(self, values: pa.Array, lines: pa.Array, where: str) -> None:
        """Look at some values. `where` begins the description of a place, which ends with the number in `lines`."""
        self._see_structure(values, lines, where)
        if pa.types.is_nested(values.type):
            return
        values = _plain(values)
        present = values.is_valid()
        is_number = _is_number(values)
        for numeric, mask in ((True, pc.and_(present, is_number)), (False, pc.and_(present, pc.invert(is_number)))):
            row = pc.index(mask, True).as_py()
            if row < 0:
                continue
            example = values[row].as_py(), f"{where} {lines[row].as_py()}"
            if numeric:
                self._number = self._number or example
            else:
                self._category = self._category or example
        if not self._fraction and self._number:
            # The spelling decides, as it does in `number`.
            self._fraction = not pa.types.is_boolean(values.type) and any(
                isinstance(_as_number(value), float) for value in pc.unique(values.filter(is_number)).to_pylist()
            )
        if self._number and self._category:
            (numeric, its_place), (text, place) = self._number, self._category
            raise RamifyError(
                f"{place}: the label {shown(text)} of the column {self._name!r} is not a number, but {numeric!r} in "
                f"{its_place} is. Correct one of them, or read all labels as text with --option label_type=category."
            )

    def _see_structure(self, values: pa.Array, lines: pa.Array, where: str) -> None:
        """Remember a place of a list or an object, or of a single value. Raises `RamifyError` for a column with both, and for
        lists and objects that are to be numbers."""
        if (row := pc.index(values.is_valid(), True).as_py()) < 0:
            return
        place = f"{where} {lines[row].as_py()}"
        if pa.types.is_nested(values.type):
            self._structured = self._structured or place
            if self.type == "number":
                raise RamifyError(
                    f"{place}: the label of the column {self._name!r} is a list or an object, not a number. Leave out --option "
                    "label_type=number."
                )
        else:
            self._single = self._single or place
        if self._structured and self._single:
            raise RamifyError(
                f"{self._structured}: the label of the column {self._name!r} is a list or an object, but that of "
                f"{self._single} is not. Write lists or objects in all rows, or in none."
            )

    def json(self, values: pa.Array, lines: pa.Array, where: str) -> list[Any]:
        """The labels as JSON values; None for an empty one. Raises `RamifyError` for one that is not of the column's type."""
        self._see_structure(values, lines, where)
        if pa.types.is_nested(values.type):
            return structured(values)
        if self.type == "auto" and not self._number and not self._category:
            self.see(values, lines, where)
        values = _plain(values)
        if self.type == "category" or (self.type == "auto" and not self._number):
            return values.to_pylist() if pa.types.is_boolean(values.type) else strings(values).to_pylist()
        converted: list[Any] = []
        for place, value in enumerate(values.to_pylist()):
            label = None if value is None else _as_number(value)
            if label is None and value is not None:
                raise RamifyError(
                    f"{where} {lines[place].as_py()}: the label {shown(value)} of the column {self._name!r} is not a number. "
                    "Correct it, or read all labels as text with --option label_type=category."
                )
            converted.append(float(label) if self._fraction and label is not None else label)
        return converted


def survey(labels: LabelColumn, tables: Iterable[Columns], path: Path, where: str) -> None:
    """Show all labels of a table to a column, so that it can decide on their type."""
    read_before(path)
    for batch in tables:
        if "label" in batch:
            labels.see(decoded(batch["label"], path, 1, ReadCounts()), batch[LINE], where)


def _plain(values: pa.Array) -> pa.Array:
    """The values without dictionaries and decimals; empty texts and NaN are null."""
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    if pa.types.is_floating(values.type):
        return pc.if_else(pc.is_nan(values), None, values)
    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        return values
    texts = pc.utf8_trim_whitespace(strings(values))
    return pc.if_else(pc.equal(texts, ""), None, texts)


def _is_number(values: pa.Array) -> pa.Array:
    """[value]: whether it is a number; False for null."""
    if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
        return pc.is_finite(values).fill_null(False)
    if pa.types.is_boolean(values.type):
        return pa.array(np.zeros(len(values), bool))
    fits = pc.match_substring_regex(values, f"^({NUMBER})$").fill_null(False)
    rest = pc.unique(values.filter(fits)).to_pylist()
    endless = [text for text in rest if number(text) is None]
    return pc.and_(fits, pc.invert(pc.is_in(values, pa.array(endless, values.type)))) if endless else fits


def _as_number(value: Any) -> int | float | None:
    if isinstance(value, str):
        return number(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) else None


def renamed(values: pa.Array, names: Mapping[str, Any], unlabelled: Sequence[str]) -> tuple[list[Any], list[int]]:
    """The names of classes in place of their numbers, and the rows of labels that are not classes, which remain as they are.

    Values in `unlabelled` and empty ones are None.
    """
    texts = strings(_plain(values)).to_pylist()
    labels = [None if text is None or text in unlabelled else names.get(text, text) for text in texts]
    known = {*names.values()}
    return labels, [row for row, label in enumerate(labels) if label is not None and label not in known] if names else []
