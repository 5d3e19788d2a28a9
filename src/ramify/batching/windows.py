"""Windows of texts that are longer than a row: which row a token is read from."""

import numpy as np

from ramify.batching.encoder_input import EncoderInput
from ramify.batching.forest import Ints, ranges


def widest_context(rows: EncoderInput, which: int = 0) -> Ints:
    """The flat place in the rows of each token of the undivided texts, text after text.

    A token that is in several rows is taken from the one in which it has maximum context, which is
    min(tokens before it, tokens after it) + 0.01 · length (as in BERT's reference implementation). The first of equals counts.
    `which` is the number of the divided text in a row of two.
    """
    begin, stop = rows.spans[:, which].T
    length, offset = stop - begin, rows.offsets[:, which]
    row_starts = np.cumsum(rows.rows.host_lengths) - rows.rows.host_lengths
    flat = ranges(row_starts + begin, row_starts + stop)
    window = np.repeat(np.arange(len(length)), length)
    place = ranges(offset, offset + length)
    before = place - offset[window]
    context = np.minimum(before, length[window] - 1 - before) + 0.01 * length[window]
    order = np.lexsort((offset[window], -context, place, rows.source[window]))
    text, token = rows.source[window[order]], place[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (text[1:] != text[:-1]) | (token[1:] != token[:-1])
    return flat[order[first]]
