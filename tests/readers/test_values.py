import math

import pytest

from ramify.readers.values import fields, identifier, objects, seconds, string


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
