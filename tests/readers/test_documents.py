import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramify.errors import RamifyError
from ramify.readers import base, documents
from ramify.readers.base import ReadCounts

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(VALUES, st.sampled_from([None, 2]), st.booleans())
def test_parser_with_its_own_stack_agrees_with_json(value, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert documents._loads_nested(text) == json.loads(text)


@given(st.text(alphabet='[]{}":,1e-. \n\\utrfalsn', max_size=12))
def test_parser_refuses_invalid_json(text):
    try:
        expected = json.loads(text, strict=False)
    except ValueError:
        with pytest.raises(ValueError):
            documents._loads_nested(text)
    else:
        assert documents._loads_nested(text) == expected


def test_deep_nesting(monkeypatch):
    value = documents.loads(b'{"a": [' * 50_000 + b"1" + b"]}" * 50_000)
    for _ in range(50_000):
        (value,) = value["a"]
    assert value == 1
    with pytest.raises(ValueError, match="Expecting"):
        documents.loads(b'{"a":[' * 50_000)
    monkeypatch.setattr(documents, "MAX_NESTING", 20_000)
    with pytest.raises(ValueError, match="Nested deeper than 20,000"):
        documents.loads(b"[" * 20_001)


def read(path, content: bytes):
    path.write_bytes(content)
    counts = ReadCounts()
    return [value for _, value in documents.documents(path, counts)], counts


@pytest.mark.parametrize(
    ("content", "values"),
    [
        (b'{"a": 1}\n\n[2]\n', [{"a": 1}, [2]]),
        (b'\xef\xbb\xbf{"a": 1}', [{"a": 1}]),
        (b'[\n {"a": 1},\n {"b": 2}\n]\n', [[{"a": 1}, {"b": 2}]]),
        (b'\n{"a": [1,\n2]}', [{"a": [1, 2]}]),
    ],
)
def test_lines_or_one_value(tmp_path, content, values):
    found, counts = read(tmp_path / "x.json", content)
    assert found == values
    assert counts.skipped == {}


@pytest.mark.parametrize(
    "content", [b'{"a": 1}\nnonsense\n{"b": 2}\n', b'[\n{"a": 1}\n{"b": 2}', b'nonsense\n{"a": 1}\n{"b": 2}']
)
def test_bad_lines_are_counted(tmp_path, content):
    found, counts = read(tmp_path / "x.json", content)
    assert found == [{"a": 1}, {"b": 2}]
    assert counts.read == counts.skipped["bad_json"] == 1
    assert "x.json, line" in counts.examples["bad_json"][0]


def test_binary_junk(tmp_path):
    found, counts = read(tmp_path / "x.json", bytes(range(255, 0, -1)) * 40)
    assert found == []
    assert counts.read == counts.skipped["bad_json"] > 0


def test_single_value_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "MAX_HELD_BYTES", 10)
    content = b"[\n" + b'"some text",\n' * 1_000_000 + b"1]"
    with pytest.raises(RamifyError, match=r"x\.json is one JSON value of more than"):
        read(tmp_path / "x.json", content)


WHOLE = b'{\n  "messages": [\n    "a",\n    "b",\n    "c"\n  ]\n}\n'


@pytest.mark.parametrize(("damaged", "line"), [(WHOLE[:-9], 5), (WHOLE.replace(b'"b"', b'"b" 1'), 4), (WHOLE[:4], 2)])
def test_damaged_value_counts_once_with_its_place(tmp_path, damaged, line):
    path = tmp_path / "export.json"
    path.write_bytes(damaged)
    counts = ReadCounts()
    assert list(documents.documents(path, counts)) == []
    assert (counts.read, counts.skipped["bad_json"]) == (1, 1)
    assert f"{path}, line {line}, where the file's single value is truncated" in counts.examples["bad_json"][0]
