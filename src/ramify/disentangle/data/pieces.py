"""Chat messages as word pieces, for models that start from a BERT-family checkpoint."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ramify.disentangle.data.channel import Ints
from ramify.progress import track
from ramify.tokenizer import RowLayout, Tokenizer
from ramify.tree import Node

_CHUNK = 4096


def format_message(message: Node, *, author: bool) -> str:
    """The text that a model reads of a message, after its author's name where `author` says so."""
    return f"{message.author}: {message.text}" if author and message.author else message.text


def encode_pieces(
    tokenizer: Tokenizer, messages: Sequence[Node], *, author: bool, max_tokens: int, layout: RowLayout
) -> tuple[NDArray[np.int32], Ints, int]:
    """Ids of all messages, each with the special tokens of a layout; the offset of each in them, and behind the last one their
    number; and the number of messages that were cut to `max_tokens`."""
    rows: list[NDArray[np.int32]] = [np.zeros(0, dtype=np.int32)]
    sizes: list[Ints] = [np.zeros(1, dtype=np.int64)]
    cut = 0
    chunks = range(0, len(messages), _CHUNK)
    for start in track("encoding texts", chunks, len(chunks)):
        ids, lengths = tokenizer.encode_batch(
            [format_message(message, author=author) for message in messages[start : start + _CHUNK]]
        )
        kept = np.minimum(lengths, max_tokens - layout.num_special)
        cut += int((lengths > kept).sum())
        place = np.arange(kept.sum()) - np.repeat(np.cumsum(kept) - kept, kept)
        inside = ids[np.repeat(np.cumsum(lengths) - lengths, kept) + place]
        rows.append(layout.wrap_batch(inside, kept).astype(np.int32))
        sizes.append(kept + layout.num_special)
    return np.concatenate(rows), np.cumsum(np.concatenate(sizes)), cut
