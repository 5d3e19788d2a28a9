"""Classes of masked pieces: does an ancestor of the comment hold the piece?"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ramify.batching.forest import Forest, Ints
from ramify.batching.text_input import TextInput
from ramify.batching.views.comment_trees import ancestors
from ramify.nn.ragged import places, runs

WORD_CLASSES = ("recoverable", "other content", "function words")
"""Names of the classes. recoverable: a content piece that stands in an ancestor and not in the visible part of the comment.
function words: the most frequent pieces of the data set. other content: all other pieces."""

COMMON = 200
"""Number of pieces that count as function words."""

_PIECES = 1 << 32
"""A number above all piece ids, so that `target * _PIECES + piece` names a piece of a target."""

_LOOKUPS = 1 << 20
"""Most pairs of a piece and an ancestor that are looked up at a time."""


@dataclass(frozen=True)
class AncestorWords:
    """The data set's content pieces, and the settings by which a target reads its ancestors.

    Classes depend on the true ancestors, whatever context a model reads. They are therefore the same for all models with the
    same tokenizer and input settings.
    """

    forest: Forest
    input: TextInput
    content: NDArray[np.bool_]
    """Whether a piece is a content piece, by id."""

    @classmethod
    def of(cls, forest: Forest, input: TextInput, vocab_size: int, common: int = COMMON) -> "AncestorWords":
        """Content pieces are all but the `common` most frequent pieces of the forest's store. Of two equally frequent pieces,
        the one with the lower id counts as more frequent."""
        counts = forest.piece_counts(np.arange(forest.num_trees), vocab_size)
        content = np.ones(vocab_size, dtype=bool)
        content[np.argsort(-counts, kind="stable")[:common]] = False
        return cls(forest, input, content)

    def read(self, targets: Ints) -> "TargetWords":
        """Look up all pieces of the targets (nodes of the forest) in their ancestors."""
        forest = self.forest
        room = self.input.max_tokens - forest.layout.num_special
        read, counts = ancestors(forest, targets, self.input.context_length, self.input.rule)
        nodes, place = np.unique(read, return_inverse=True)
        lengths = np.minimum(forest.length[nodes], room)
        held, times = _pieces(forest, nodes, lengths)
        keys, target_times = _pieces(forest, targets, np.minimum(forest.length[targets], room))
        target, piece = keys // _PIECES, keys % _PIECES
        shares = np.zeros(len(keys))
        # Ancestors may all be without text, as the chapters and paragraphs of a document are.
        for start, stop in runs(counts[target], _LOOKUPS) if len(held) else ():
            reader = np.repeat(np.arange(start, stop), counts[target[start:stop]])
            wanted = place[places(counts, target[start:stop])] * _PIECES + piece[reader]
            spot, known = _find(held, wanted)
            shares[start:stop] = np.bincount(reader - start, weights=times[spot] * known, minlength=stop - start)
        total = np.bincount(np.repeat(np.arange(len(targets)), counts), weights=lengths[place], minlength=len(targets))
        return TargetWords(keys, target_times, shares / np.maximum(total, 1)[target], total > 0, self.content)


@dataclass(frozen=True)
class TargetWords:
    """The pieces of some targets' texts, and their shares of the ancestors' pieces. Targets are counted from 0."""

    keys: Ints
    """Each piece of each target once, in ascending order."""
    times: Ints
    """The number of times that the piece stands in the target's own text."""
    share: NDArray[np.float64]
    """The piece's share of all pieces of the target's ancestors."""
    has_ancestors: NDArray[np.bool_]
    """Whether the ancestors of each target hold any piece."""
    content: NDArray[np.bool_]

    def share_of(self, targets: Ints, pieces: Ints) -> NDArray[np.float64]:
        """The shares of pieces of the targets' own texts. They are NaN if a target's ancestors hold no piece."""
        spot, _ = _find(self.keys, targets * _PIECES + pieces)
        return np.where(self.has_ancestors[targets], self.share[spot], np.nan)

    def classes(self, targets: Ints, pieces: Ints, shown: Ints) -> Ints:
        """The places in `WORD_CLASSES` of masked pieces, given what is shown in their stead. All masked pieces of a target must
        be asked for at once: the rest of its text is visible."""
        spot, _ = _find(self.keys, targets * _PIECES + pieces)
        in_place, known = _find(self.keys, targets * _PIECES + shown)
        count = len(self.keys)
        visible = self.times - np.bincount(spot, minlength=count) + np.bincount(in_place[known], minlength=count)
        recoverable = (self.share[spot] > 0) & (visible[spot] == 0)
        return np.where(self.content[pieces], np.where(recoverable, 0, 1), 2)


def _pieces(forest: Forest, nodes: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """The keys of the pieces in the first `lengths` tokens of each node, and how often each stands there."""
    ids = forest.gather(nodes, lengths)
    return np.unique(np.repeat(np.arange(len(nodes)), lengths) * _PIECES + ids, return_counts=True)


def _find(keys: Ints, wanted: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """The place of each wanted key, and whether it is there at all. A missing key has the place of another."""
    if len(keys) == 0:
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), bool)
    spot = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return spot, keys[spot] == wanted
