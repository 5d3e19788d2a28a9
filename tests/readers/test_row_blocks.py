"""Blocks of whole rows, cut from a stream by the caller's own thread."""

import io
import threading

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramify.readers.row_blocks import RowTooLongError, one_ahead, row_blocks

HEADER = b"a,b\n"


def parsed(rows, quote):
    """The rows of two columns as Arrow reads them, and the number of other rows."""
    others = []
    parsing = pyarrow.csv.ParseOptions(
        quote_char=quote or False, invalid_row_handler=lambda row: others.append(row.actual_columns) or "skip"
    )
    reading = pyarrow.csv.ReadOptions(column_names=["a", "b"], use_threads=False, block_size=len(rows) + 1)
    texts = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys("ab", pa.binary()))
    table = pyarrow.csv.read_csv(pa.BufferReader(rows), reading, parsing, texts)
    return table.to_pylist(), others


@given(
    body=st.lists(st.sampled_from(["x", " ", ",", '"', '""', '"x', 'x"', "\n", "\r", "\r\n", ',"', '",', '"\n']), max_size=40),
    size=st.integers(1, 40),
    quote=st.sampled_from(['"', ""]),
)
@settings(max_examples=500, deadline=None)
def test_blocks_end_at_rows_of_arrow(body, size, quote):
    """The stream may be cut within a row, a quoted field, a doubled quotation mark, or a line end of two bytes."""
    data = HEADER + "".join(body).encode()
    blocks = []
    try:
        for block in row_blocks(io.BytesIO(data).read, size, ",", quote):
            blocks.append(bytes(block))
    except RowTooLongError:
        # A row longer than a block: everything before it is complete.
        data = b"".join(blocks)
    assert b"".join(blocks) == data
    if not blocks:
        return
    assert blocks[0] == HEADER
    found = [parsed(block, quote) for block in blocks[1:]]
    rows, others = parsed(data[len(HEADER) :], quote) if len(data) > len(HEADER) else ([], [])
    assert [row for some, _ in found for row in some] == rows
    assert [width for _, some in found for width in some] == others


@pytest.mark.parametrize(("body", "size", "fits"), [
    (b"1,xxxxxxxx\n2,y\n", 8, True), (b"1,xxxxxxxxxxxxxxxxxxxxx\n", 8, False), (b'1,"xxxx\n2,y\n3,z\n', 8, False),
    (b'1,"xxxx\n', 8, True),
])  # fmt: skip
def test_row_may_continue_in_the_next_block(body, size, fits):
    blocks = row_blocks(io.BytesIO(HEADER + body).read, size, ",", '"')
    if fits:
        assert b"".join(blocks) == HEADER + body
        return
    with pytest.raises(RowTooLongError):
        list(blocks)


def test_byte_order_mark_is_not_in_the_header():
    data = b"\xef\xbb\xbf" + HEADER + b"1,2\n"
    assert [bytes(block) for block in row_blocks(io.BytesIO(data).read, 100, ",", '"')] == [HEADER, b"1,2\n"]


def test_next_item_is_made_ahead():
    """No item beyond the next is made ahead; errors are raised at their place."""
    made, before = [], threading.enumerate()

    def items():
        for number in range(3):
            made.append(number)
            yield number
        raise OSError("broken")

    ahead = one_ahead(items())
    assert next(ahead) == 0
    ahead.close()
    assert made == [0, 1]
    found = []
    with pytest.raises(OSError, match="broken"):
        found.extend(one_ahead(items()))
    assert made == [0, 1, 0, 1, 2]
    assert set(threading.enumerate()) <= set(before)
