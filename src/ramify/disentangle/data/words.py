"""A vocabulary of whole words learned from chat messages, with word vectors."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.linalg import svds
from tokenizers import Tokenizer as Engine
from tokenizers import models, normalizers, pre_tokenizers

from ramify.disentangle.data.channel import Ints, build_incidence
from ramify.disentangle.data.splitting import USER
from ramify.tokenizer import SPECIAL, Tokenizer

MIN_COUNT = 5
"""Rarer words are known by their shape alone."""

WINDOW = 10
_SMOOTHING = 0.75
_SCALE = 0.3
_NO_WORD = re.compile(r"\[[A-Za-z]+[0-9]*\]$|##")
"""Pieces that are no words: special tokens, and the ends of words."""
_WORD_MARKS = "Ġ▁"
"""Marks of pieces that begin a word."""
_LONG_RUN = re.compile(r"(.)\1{3,}")
_SHORT_RUN = r"\1\1\1"
_MAX_SHAPE = 12


def find_shape(word: str) -> str:
    """The shape that stands for a rare word: letters as a, digits as 0, with long runs cut short."""
    kinds = "".join("0" if letter.isdigit() else "a" if letter.isalpha() else letter for letter in word)
    return f"<{_LONG_RUN.sub(_SHORT_RUN, kinds)[:_MAX_SHAPE]}>"


def learn_vocabulary(messages: Iterable[Sequence[str]], min_count: int = MIN_COUNT) -> Tokenizer:
    """A vocabulary of the words used at least `min_count` times, and of the shapes of the others."""
    counts = Counter(word for message in messages for word in message)
    rare = {word: count for word, count in counts.items() if count < min_count and word != USER}
    shapes: Counter[str] = Counter()
    for word, count in rare.items():
        shapes[find_shape(word)] += count
    kept = {word: count for word, count in counts.items() if word not in rare}
    kept |= {word: count for word, count in shapes.items() if count >= min_count}
    # [CLS] opens every message, so that a message without words has a token.
    words = [*SPECIAL, USER, *sorted(kept.keys() - {USER, *SPECIAL}, key=lambda word: (-kept[word], word))]
    engine = Engine(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    engine.normalizer = normalizers.Lowercase()
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.add_special_tokens(list(SPECIAL))
    return Tokenizer(engine)


def encode_words(tokenizer: Tokenizer, messages: Iterable[Sequence[str]]) -> tuple[NDArray[np.int32], Ints]:
    """Ids of all messages, each opened by [CLS]; and the offset of each in them, and behind the last one their number."""
    ids = tokenizer.ids
    unknown = ids["[UNK]"]
    flat: list[int] = []
    offsets = [0]
    for message in messages:
        flat.append(tokenizer.cls_id)
        flat += [ids[word] if word in ids else ids.get(find_shape(word), unknown) for word in message]
        offsets.append(len(flat))
    return np.array(flat, dtype=np.int32), np.array(offsets, dtype=np.int64)


class WordRanks(dict[str, int]):
    """Frequency ranks of words: the commonest has rank 1. An unknown word has a rank behind all others."""

    def __init__(self, ranks: Mapping[str, int] | None = None) -> None:
        super().__init__(ranks or {})
        self._last = max(self.values(), default=0) + 1

    def __missing__(self, word: str) -> int:
        return self._last

    @classmethod
    def build(cls, tokenizer: Tokenizer, *, pieces: bool) -> "WordRanks":
        """Ranks in the order of ids, which both `learn_vocabulary` and BERT's word pieces have by frequency.

        In vocabularies of word pieces, single letters and signs come first in another order, so each of them has rank 1. Where
        a mark shows that a piece begins a word, as in RoBERTa's, the word is the piece without it.
        """
        words = sorted(tokenizer.ids, key=tokenizer.ids.__getitem__)
        if not pieces:
            words = [word for word in words if word not in SPECIAL]
            return cls({word: rank for rank, word in enumerate(words, 1)})
        words = [word for word in words if word]
        # In vocabularies with ##, these marks are ordinary signs.
        if any(word[0] in _WORD_MARKS for word in words if len(word) > 1) and not any(word.startswith("##") for word in words):
            words = [word.lstrip(_WORD_MARKS) for word in words if word[0] in _WORD_MARKS or len(word) == 1]
            words = [*dict.fromkeys(word.lower() for word in words if word)]
        words = [word for word in words if not _NO_WORD.match(word)]
        signs = [word for word in words if len(word) == 1]
        words = [word for word in words if len(word) > 1]
        return cls(dict.fromkeys(signs, 1) | {word: rank for rank, word in enumerate(words, 1)})


def tabulate_words(messages: Iterable[Sequence[str]], ranks: WordRanks) -> tuple[csr_array, Float[NDArray, " word"]]:
    """[message word]: the different words of messages; and the rarity of each word, the logarithm of its rank."""
    columns: dict[str, int] = {}
    rows = [[columns.setdefault(word, len(columns)) for word in dict.fromkeys(message)] for message in messages]
    return build_incidence(rows, max(1, len(columns))), np.log([ranks[word] for word in columns] or [1])


def learn_word_vectors(ids: NDArray[np.int32], offsets: Ints, vocab_size: int, dim: int) -> Float[NDArray, "vocab dim"]:
    """Word vectors from co-occurrences within messages: leading singular vectors of their positive pointwise mutual information
    (Levy et al. 2015)."""
    cooccurrence = _count_cooccurrences(ids, offsets, vocab_size)
    row = np.asarray(cooccurrence.sum(axis=1)).ravel()
    column = row**_SMOOTHING
    cells = cooccurrence.tocoo()
    one, two = cells.coords
    expected = row[one] * column[two] / column.sum()
    information = np.maximum(0.0, np.log(np.asarray(cells.data) / expected))
    table = csr_array((information, (one, two)), shape=cooccurrence.shape)
    table.eliminate_zeros()
    start = np.random.Generator(np.random.Philox(key=0)).standard_normal(vocab_size)
    rank = min(dim, vocab_size - 1)
    left, values, _ = svds(table, k=rank, v0=start)
    assert left is not None
    order = np.argsort(-values)
    # The sign of a singular vector is arbitrary and differs between machines.
    signs = np.sign(left[np.abs(left).argmax(axis=0), np.arange(rank)])
    vectors = (left * signs * np.sqrt(values))[:, order]
    vectors = np.pad(vectors, ((0, 0), (0, dim - rank)))
    return (vectors * (_SCALE / max(1e-12, vectors[row > 0].std()))).astype(np.float32)


def _count_cooccurrences(ids: NDArray[np.int32], offsets: Ints, vocab_size: int) -> csr_array:
    """[word word]: co-occurrences in one message at most WINDOW words apart, each weighted by one over that distance."""
    message = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    total = csr_array((vocab_size, vocab_size))
    for distance in range(1, WINDOW + 1):
        same = message[distance:] == message[:-distance]
        one, two = ids[:-distance][same], ids[distance:][same]
        weight = np.full(len(one), 1 / distance)
        total = total + coo_array((weight, (one, two)), shape=total.shape).tocsr()
    return (total + total.T).tocsr()
