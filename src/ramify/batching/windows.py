"""Windows of texts that are longer than a row: which row a token is read from."""

import numpy as np

from ramify.batching.encoder_input import EncoderInput
from ramify.batching.forest import Ints


def widest_context(rows: EncoderInput, text: Ints, place: Ints) -> Ints:
    """The flat place of tokens in the rows of their texts. A token that is in several rows is taken from the one with the most
    tokens around it (the maximum context of BERT's reference implementation).

    `text` are the numbers of texts, and `place` the tokens of the undivided texts.
    """
    by_text = np.lexsort((rows.offsets[:, 0], rows.source))
    begin, length = rows.offsets[by_text, 0], (rows.spans[:, 0, 1] - rows.spans[:, 0, 0])[by_text]
    at = (np.cumsum(rows.rows.host_lengths) - rows.rows.host_lengths + rows.spans[:, 0, 0])[by_text]
    first = np.searchsorted(rows.source[by_text], text)
    stop = np.searchsorted(rows.source[by_text], text, "right")
    best, chosen = np.full(len(text), -np.inf), first
    for number in range(int((stop - first).max(initial=0))):
        window = np.minimum(first + number, stop - 1)
        left = place - begin[window]
        right = length[window] - 1 - left
        score = np.where((left >= 0) & (right >= 0), np.minimum(left, right) + 0.01 * length[window], -np.inf)
        better = score > best
        best, chosen = np.where(better, score, best), np.where(better, window, chosen)
    return at[chosen] + place - begin[chosen]
