"""JSON records with random values in their fields, for tests that readers never crash."""

from hypothesis import strategies as st

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["", "x", "1700000001.000100", "\ud83d", "2024-01-31T10:00:00+00:00", "1" * 400, 10**400]),
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=4,
)


def altered(records):
    """One of the records without some fields and with junk in others, or junk alone."""

    def fields(record):
        optional = {name: st.sampled_from([value]) | inside(value) | JUNK for name, value in record.items()}
        return st.fixed_dictionaries({}, optional=optional)

    def inside(value):
        if isinstance(value, dict) and value:
            return fields(value)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return st.lists(fields(value[0]), max_size=2)
        return st.just(value)

    return st.one_of(*map(fields, records), st.sampled_from(records), JUNK)
