"""Words of chat messages, for models that know whole words: told apart, counted, and given vectors."""

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

from ramify.disentangle.data.channel import Ints, incidence
from ramify.disentangle.data.spelling import USER
from ramify.tokenizer import SPECIAL, Tokenizer

LEAST = 5
"""Words said less often are known by their shape alone."""

WINDOW = 10
_SMOOTHING = 0.75
_SCALE = 0.3
_OWN = re.compile(r"\[[A-Za-z]+[0-9]*\]$|##")
"""Pieces that are no words: what a tokenizer puts in itself, and the ends of words."""
_BEGINNING = "Ġ▁"
"""How pieces are marked that begin a word."""
_LONG_RUN = re.compile(r"(.)\1{3,}")
_SHORT_RUN = r"\1\1\1"
_LONGEST_SHAPE = 12


def shape(word: str) -> str:
    """What a rare word looks like: letters are a, digits 0, runs of one kind are cut short."""
    kinds = "".join("0" if letter.isdigit() else "a" if letter.isalpha() else letter for letter in word)
    return f"<{_LONG_RUN.sub(_SHORT_RUN, kinds)[:_LONGEST_SHAPE]}>"


def learn_words(messages: Iterable[Sequence[str]], least: int = LEAST) -> Tokenizer:
    """A vocabulary of the words said at least so often, and of the shapes of the others."""
    counts = Counter(word for message in messages for word in message)
    rare = {word: count for word, count in counts.items() if count < least and word != USER}
    shapes: Counter[str] = Counter()
    for word, count in rare.items():
        shapes[shape(word)] += count
    kept = {word: count for word, count in counts.items() if word not in rare}
    kept |= {word: count for word, count in shapes.items() if count >= least}
    # [CLS] opens every message, so that one without words has something to say.
    words = [*SPECIAL, USER, *sorted(kept.keys() - {USER, *SPECIAL}, key=lambda word: (-kept[word], word))]
    engine = Engine(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    engine.normalizer = normalizers.Lowercase()
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.add_special_tokens(list(SPECIAL))
    return Tokenizer(engine)


def encode(tokenizer: Tokenizer, messages: Iterable[Sequence[str]]) -> tuple[NDArray[np.int32], Ints]:
    """Ids of all messages, each opened by [CLS], and where each begins; one more beginning ends the last."""
    ids = tokenizer.ids
    unknown = ids["[UNK]"]
    flat: list[int] = []
    starts = [0]
    for message in messages:
        flat.append(tokenizer.cls_id)
        flat += [ids[word] if word in ids else ids.get(shape(word), unknown) for word in message]
        starts.append(len(flat))
    return np.array(flat, dtype=np.int32), np.array(starts, dtype=np.int64)


class Ranks(dict[str, int]):
    """How common words are: 1 is the commonest. A word that is not among them is rarer than all that are."""

    def __init__(self, ranks: Mapping[str, int] | None = None) -> None:
        super().__init__(ranks or {})
        self._rarest = max(self.values(), default=0) + 1

    def __missing__(self, word: str) -> int:
        return self._rarest

    @classmethod
    def of(cls, tokenizer: Tokenizer, *, pieces: bool) -> "Ranks":
        """In the order of their ids, as `learn_words` makes them and as BERT's word pieces stand. Among pieces, letters
        and signs come before all words and in no such order: each is as common as the first word. Pieces that
        carry a mark where a word begins, as RoBERTa's, are words without it."""
        words = sorted(tokenizer.ids, key=tokenizer.ids.__getitem__)
        if not pieces:
            words = [word for word in words if word not in SPECIAL]
            return cls({word: rank for rank, word in enumerate(words, 1)})
        words = [word for word in words if word]
        # Where it is the others that carry a mark, these signs are nothing but signs.
        if any(word[0] in _BEGINNING for word in words if len(word) > 1) and not any(word.startswith("##") for word in words):
            words = [word.lstrip(_BEGINNING) for word in words if word[0] in _BEGINNING or len(word) == 1]
            words = [*dict.fromkeys(word.lower() for word in words if word)]
        words = [word for word in words if not _OWN.match(word)]
        signs = [word for word in words if len(word) == 1]
        words = [word for word in words if len(word) > 1]
        return cls(dict.fromkeys(signs, 1) | {word: rank for rank, word in enumerate(words, 1)})


def wording(messages: Iterable[Sequence[str]], ranks: Ranks) -> tuple[csr_array, Float[NDArray, " word"]]:
    """[message word]: the different words of messages; and of each word how rare it is: the logarithm of its rank."""
    columns: dict[str, int] = {}
    rows = [[columns.setdefault(word, len(columns)) for word in dict.fromkeys(message)] for message in messages]
    return incidence(rows, max(1, len(columns))), np.log([ranks[word] for word in columns] or [1])


def word_vectors(ids: NDArray[np.int32], starts: Ints, vocab_size: int, dim: int) -> Float[NDArray, "vocab dim"]:
    """Vectors from what stands near what within messages: positive pointwise mutual information, by its leading singular
    vectors (Levy et al. 2015)."""
    together = _neighbours(ids, starts, vocab_size)
    row = np.asarray(together.sum(axis=1)).ravel()
    column = row**_SMOOTHING
    cells = together.tocoo()
    one, two = cells.coords
    expected = row[one] * column[two] / column.sum()
    information = np.maximum(0.0, np.log(np.asarray(cells.data) / expected))
    table = csr_array((information, (one, two)), shape=together.shape)
    table.eliminate_zeros()
    start = np.random.Generator(np.random.Philox(key=0)).standard_normal(vocab_size)
    rank = min(dim, vocab_size - 1)
    left, values, _ = svds(table, k=rank, v0=start)
    assert left is not None
    order = np.argsort(-values)
    # A singular vector's sign means nothing, and is not the same everywhere.
    signs = np.sign(left[np.abs(left).argmax(axis=0), np.arange(rank)])
    vectors = (left * signs * np.sqrt(values))[:, order]
    vectors = np.pad(vectors, ((0, 0), (0, dim - rank)))
    return (vectors * (_SCALE / max(1e-12, vectors[row > 0].std()))).astype(np.float32)


def _neighbours(ids: NDArray[np.int32], starts: Ints, vocab_size: int) -> csr_array:
    """[word word]: how often two stand in one message, at most WINDOW words apart, each time by one over how far apart."""
    message = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    total = csr_array((vocab_size, vocab_size))
    for apart in range(1, WINDOW + 1):
        same = message[apart:] == message[:-apart]
        one, two = ids[:-apart][same], ids[apart:][same]
        weight = np.full(len(one), 1 / apart)
        total = total + coo_array((weight, (one, two)), shape=total.shape).tocsr()
    return (total + total.T).tocsr()
