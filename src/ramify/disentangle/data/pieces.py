"""Chat messages as word pieces, for models that start from a BERT-family checkpoint."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ramify.disentangle.data.channel import Ints
from ramify.tokenizer import Tokenizer
from ramify.tree import Node

_AT_ONCE = 4096


def line(message: Node, *, author: bool) -> str:
    """What is read of a message: its text, after the name of its author."""
    return f"{message.author}: {message.text}" if author and message.author else message.text


def encode_pieces(
    tokenizer: Tokenizer, messages: Sequence[Node], *, author: bool, max_tokens: int
) -> tuple[NDArray[np.int32], Ints, int]:
    """Ids of all messages, `[CLS] text [SEP]` each; where each begins, with one more beginning that ends the last; and how many
    were cut to `max_tokens`."""
    rows: list[NDArray[np.int32]] = [np.zeros(0, dtype=np.int32)]
    sizes: list[Ints] = [np.zeros(1, dtype=np.int64)]
    cut = 0
    for start in range(0, len(messages), _AT_ONCE):
        ids, lengths = tokenizer.encode_batch([line(each, author=author) for each in messages[start : start + _AT_ONCE]])
        kept = np.minimum(lengths, max_tokens - tokenizer.num_special)
        cut += int((lengths > kept).sum())
        place = np.arange(kept.sum()) - np.repeat(np.cumsum(kept) - kept, kept)
        inside = ids[np.repeat(np.cumsum(lengths) - lengths, kept) + place]
        rows.append(tokenizer.wrap_batch(inside, kept).astype(np.int32))
        sizes.append(kept + tokenizer.num_special)
    return np.concatenate(rows), np.cumsum(np.concatenate(sizes)), cut
