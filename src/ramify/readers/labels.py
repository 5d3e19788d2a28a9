"""Labels from columns of tables: texts (categories) or numbers, as the whole column decides."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from ramify.errors import RamifyError, shown
from ramify.readers.base import ReadCounts, pc, read_before
from ramify.readers.columns import LINE, Columns, decoded, strings, structured

LabelType = Literal["auto", "category", "number"]

_NUMBER = re.compile(r"[+-]?(0|[1-9]\d*|\d+\.\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""Texts that are numbers. A number with leading zeros is an identifier."""
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
        self._seen: dict[Literal["structure", "single", "number", "category"], tuple[pa.Scalar, str]] = {}
        """Kind of values -> the first one, and its place."""
        self._fraction = False

    def see(self, values: pa.Array, lines: pa.Array, where: str) -> None:
        """Look at some values. `where` begins the description of a place, which ends with the number in `lines`."""
        self._see_structure(values, lines, where)
        if pa.types.is_nested(values.type):
            return
        values = _plain(values)
        is_number = _is_number(values)
        self._see("number", values, is_number, lines, where)
        self._see("category", values, pc.and_(values.is_valid(), pc.invert(is_number)), lines, where)
        if not self._fraction and "number" in self._seen:
            # The spelling decides, as it does in `number`.
            numbers = pc.unique(values.filter(is_number)).to_pylist()
            self._fraction = any(isinstance(_as_number(value), float) for value in numbers)
        if "number" in self._seen and "category" in self._seen:
            numeric, its_place = self._seen["number"]
            text, place = self._seen["category"]
            raise self._no_number(text.as_py(), place, f", but {numeric.as_py()!r} in {its_place} is")

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
        return RamifyError(
            f"{place}: the label {shown(value)} of the column {self._name!r} is not a number{other}. Correct "
            f"{'one of them' if other else 'it'}, or read all labels as text with --option label_type=category."
        )

    def json(self, values: pa.Array, lines: pa.Array, where: str) -> list[Any]:
        """The labels as JSON values; None for an empty one. Raises `RamifyError` for one that is not of the column's type."""
        self._see_structure(values, lines, where)
        if pa.types.is_nested(values.type):
            return structured(values)
        if self.type == "auto" and not self._seen.keys() & {"number", "category"}:
            self.see(values, lines, where)
        values = _plain(values)
        if self.type == "category" or (self.type == "auto" and "number" not in self._seen):
            return values.to_pylist() if pa.types.is_boolean(values.type) else strings(values).to_pylist()
        items = values.to_pylist()
        labels = [_as_number(value) for value in items]
        for place, (label, value) in enumerate(zip(labels, items, strict=True)):
            if label is None and value is not None:
                raise self._no_number(value, f"{where} {lines[place].as_py()}")
        return [float(label) if self._fraction and label is not None else label for label in labels]


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
    numbers = [value for value in pc.unique(values).to_pylist() if _as_number(value) is not None]
    return pc.is_in(values, pa.array(numbers, values.type))


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
