import math

import pytest

from ramify.readers.base import ReadCounts
from ramify.readers.values import fields, identifier, objects, parse_time, seconds, string


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, 5.0),
        ("5.25", 5.25),
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T01:00:00.5000000+01:00", 0.5),
        (" 1970-01-02 ", 86_400.0),
        (True, None),
        (math.nan, None),
        ("inf", None),
        (10**400, None),
        (1.6e12, 1.6e9),
        ("1600000000500", 1_600_000_000.5),
        (1.6e18, None),
        ("-99999999999999999", None),
        ("noon", None),
        ([5], None),
        (None, None),
    ],
)
def test_seconds(value, expected):
    assert seconds(value) == expected


def test_unexpected_values():
    assert [identifier(value) for value in (5, "x", 5.0, True, "", None)] == ["5", "x", None, None, None, None]
    assert [string(value) for value in ("x", " ", 5)] == ["x", None, None]
    assert objects([{"a": 1}, 3, []]) == [{"a": 1}]
    assert objects({"a": 1}) == []
    assert (fields({"a": 1}), fields([])) == ({"a": 1}, {})


def test_seconds_of_milliseconds():
    assert seconds("1600000000500", unit=1000) == 1_600_000_000.5
    assert seconds("1970-01-01T00:01:00Z", unit=1000) == 60.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Friday, 5 January 2024 at 10:00:00 UTC", 1_704_448_800.0),
        ("January 5, 2024 at 10:00:00\u202fAM UTC", 1_704_448_800.0),
        ("Freitag, 5. Januar 2024 um 11:00:00 +01:00", 1_704_448_800.0),
        ("05-Jan-24 10:00 AM", 1_704_448_800.0),
        ("13/01/2024 10:00", None),
        ("05/01/2024 10:00", None),
        ("January", None),
    ],
)
def test_dates_of_records_in_words(text, expected):
    counts = ReadCounts()
    assert parse_time(text, counts, "a.json, message 1") == expected
    assert counts.kept == ({} if expected else {"bad_time": 1})
