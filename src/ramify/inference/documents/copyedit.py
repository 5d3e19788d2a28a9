"""Copyediting (AGENT, section 4.3): every node moves a little towards its prediction from its siblings, level by level from
above, and the nodes below follow.

The formula of the paper is lost. This is v ← (1 − ε) v + ε ṽ, where ṽ is the prediction of the node as a masked child.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ramify.batching.document_batch import MASK, NUM_MARKS, PAD, Banks
from ramify.batching.forest import Ints, ranges
from ramify.config import check_seed
from ramify.errors import RamifyError
from ramify.inference.base import TOKENS
from ramify.inference.documents.decoding import Passing, PassRule, children_at, decode_children
from ramify.inference.documents.vector_trees import NONE, VectorLevel, VectorTree, decoded_level
from ramify.inference.documents.vectors import Vectors
from ramify.nn.heads import MAX_LOGITS
from ramify.nn.modes import evaluating
from ramify.nn.ragged import Rows, length_key, runs
from ramify.tasks.nested.task import NestedAutoencoder

Order = Literal["per_level", "traversal"]
Propagate = Literal["regenerate", "delta"]
Update = Literal["simultaneous", "sequential"]
Towards = Literal["masked", "siblings_mean", "random_vector", "noise"]
Lowest = Literal["sentence", "token"]
Draw = Callable[[np.random.Generator, int], NDArray[Any]]
"""Draws values for so many children."""


@dataclass(frozen=True)
class Copyediting:
    """The settings of copyediting."""

    epsilon: float = 0.1
    """The share ε of the way to the prediction."""
    passes: int = 1
    order: Order = "per_level"
    """per_level: all passes of a level, then the levels below. traversal: one pass of each level from above, then the next
    traversal. With propagate=regenerate, it discards the edits that the last one made below the highest edited level."""
    propagate: Propagate = "delta"
    """The nodes below an edited one. regenerate: they are decoded anew. delta: each child vector moves by the difference of
    what the new and the old vector of its node decode to; and the edits that turn the old vector's tokens into those of the
    new one are made to the given tokens. Without a change above, nothing changes below."""
    update: Update = "simultaneous"
    """simultaneous: all nodes of a level are predicted from old vectors. sequential: from those of this pass, one node of a
    row after the other."""
    towards: Towards = "masked"
    """masked: the prediction. The others are controls. siblings_mean: the mean of the other children of its row.
    random_vector: a known vector of the level. noise: a random direction, with a step as long as towards the prediction."""
    prediction: Passing = "raw"
    """The vector that a prediction stands for; see `Passing`."""
    passing: Passing = "raw"
    """The vectors that decoders pass on; see `Passing`."""
    lowest: Lowest = "sentence"
    """token: the tokens of each sentence are edited, too, after all levels above. A token is a distribution over the
    vocabulary, at first the one token; the prediction is that of the masked token. The likeliest one is written."""
    seed: int = 0
    """Draws the random vectors of controls. Each document has draws of its own, which its number and the level determine."""

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise RamifyError(f"epsilon={self.epsilon:g} is a share of the way to a prediction. Set it from 0 to 1.")
        if self.passes < 0:
            raise RamifyError(f"passes={self.passes} must not be negative. Set 0 for no copyediting.")
        check_seed(self.seed)

    def needs_known(self, name: Literal["towards", "prediction", "passing"]) -> bool:
        """Whether the value of this setting needs known vectors."""
        return getattr(self, name) not in ("raw", "masked", "siblings_mean", "noise")


@dataclass(frozen=True)
class Copyeditor:
    """Copyedits the documents of a tree."""

    task: NestedAutoencoder
    settings: Copyediting
    known: Sequence[Vectors] = ()
    """Known vectors of each level, from the lowest. Settings say whether they are needed."""
    candidates: Sequence[Vectors | None] = ()
    """The known vectors of each level of children from which an end mark must differ, if nodes are regenerated."""
    names: Banks | None = None
    """The bank of each document, by its number, if the model has a memory of names."""
    names_of_rows: Banks | None = None
    """The bank of each of the lowest rows, if they are given and not regenerated."""

    def edited(self, tree: VectorTree, progress: Callable[[int], None] | None = None) -> VectorTree:
        """The tree after copyediting. A level whose rows have single children is skipped. `progress` receives 1 per pass of a
        level."""
        settings, levels = self.settings, [*tree.levels]
        if not settings.passes:
            return tree
        heights = range(len(levels) - 2, -1, -1)
        cut: set[int] = set()
        if settings.order == "per_level":
            rounds = [range(settings.passes)]
        else:
            rounds = [range(number, number + 1) for number in range(settings.passes)]
        for numbers in rounds:
            # A round writes all levels anew that an earlier one has cut.
            stale, cut = False, set()
            # A level above moves the vectors of a level before its own passes do.
            given = [each.vectors for each in levels]
            for level in heights:
                if _has_siblings(levels[level + 1]):
                    stale = True
                for number in numbers:
                    vectors = self._pass(replace(tree, levels=tuple(levels)), level, number)
                    levels[level] = replace(levels[level], vectors=vectors)
                    if progress is not None:
                        progress(1)
                document = replace(tree, levels=tuple(levels)).document_of[level]
                if settings.propagate == "delta":
                    self._move_below(levels, level, document, given[level])
                elif stale:
                    cut |= self._regenerate_below(levels, level, document)
        if settings.lowest == "token":
            levels[0] = edited_tokens(self, replace(tree, levels=tuple(levels)))
        return replace(tree, levels=tuple(levels), cut=tree.cut | cut)

    # --- one pass ----------------------------------------------------------------------------------------------------

    def _pass(self, tree: VectorTree, level: int, number: int) -> Vectors:
        """The vectors of a level after one pass."""
        parents, vectors = tree.levels[level + 1], tree.levels[level].vectors.copy()
        # Rows that truncation leaves out belong to no document.
        is_held = tree.document_of[level + 1][parents.child_row] >= 0
        for every in self.groups(parents):
            group = every[is_held[every]]
            own = parents.child[group]
            step = self._steps(tree, level, vectors, group, number)
            vectors[own] = vectors[own] + np.float32(self.settings.epsilon) * step
        return vectors

    def _steps(self, tree: VectorTree, level: int, vectors: Vectors, asked: Ints, number: int) -> Vectors:
        """The way from each of some children to its goal."""
        parents = tree.levels[level + 1]
        old = vectors[parents.child[asked]]
        match self.settings.towards:
            case "masked":
                return self._predictions(level, parents, vectors, asked) - old
            case "siblings_mean":
                return siblings_mean(parents, vectors, asked) - old
            case "random_vector":
                known = self.known[level]
                drawn = self._draws(tree, level, asked, number, lambda random, size: random.integers(len(known), size=size))
                return known[drawn] - old
            case "noise":
                step = self._predictions(level, parents, vectors, asked) - old
                shape = vectors.shape[1:]
                noise = self._draws(tree, level, asked, number, lambda random, size: random.standard_normal((size, *shape)))
                lengths = np.linalg.norm(step, axis=1, keepdims=True)
                return (noise / np.linalg.norm(noise, axis=1, keepdims=True) * lengths).astype(np.float32)

    def _predictions(self, level: int, parents: VectorLevel, vectors: Vectors, asked: Ints) -> Vectors:
        rule = PassRule(self.settings.prediction, self.known)
        return predicted_children(self.task, level + 1, parents, vectors, asked, rule)

    def _draws(self, tree: VectorTree, level: int, asked: Ints, number: int, draw: Draw) -> NDArray[Any]:
        """Random draws for some children of rows. Those of a document depend on nothing but the seed, its number, the level,
        the pass and its own children."""
        parents = tree.levels[level + 1]
        document = tree.document_of[level + 1][parents.child_row]
        return drawn(self.settings.seed, document[:, None], asked, (level + 1, number), draw)

    def groups(self, parents: VectorLevel) -> list[Ints]:
        """The children with siblings, in groups that are edited at once."""
        asked = np.flatnonzero(parents.counts[parents.child_row] > 1)
        if self.settings.update == "simultaneous":
            return [asked]
        firsts = np.cumsum(parents.counts) - parents.counts
        place = asked - firsts[parents.child_row[asked]]
        return [asked[place == own] for own in range(int(place.max(initial=-1)) + 1)]

    def banks(self, rows: Ints, document: Ints) -> Banks | None:
        """The banks that the tokens of some of the lowest rows read. `document` is that of each of the lowest rows."""
        if self.names_of_rows is not None and self.settings.propagate == "delta":
            return self.names_of_rows.at(torch.from_numpy(rows))
        return None if self.names is None else self.names.at(torch.from_numpy(document[rows]))

    # --- the levels below ----------------------------------------------------------------------------------------------

    def _regenerate_below(self, levels: list[VectorLevel], level: int, document: Ints) -> set[int]:
        """Decode the vectors of a level into the rows below, and return the documents that are cut. `document` is that of each
        row."""
        rule = PassRule(self.settings.passing, self.known)
        candidates = self.candidates[level] if level else None
        decoded = decoded_level(self.task, level, levels[level].vectors, document, candidates, rule, self.names)
        levels[level] = decoded.level
        if level:
            # The rows below are decoded from these vectors in turn.
            levels[level - 1] = VectorLevel(decoded.below, NONE, np.zeros(len(decoded.below), dtype=np.int64))
        # Rows that truncation leaves out belong to no document.
        return set(decoded.cut[decoded.cut >= 0].tolist())

    def _move_below(self, levels: list[VectorLevel], level: int, document: Ints, old: Vectors) -> None:
        """Move the children of those rows of a level whose vectors have changed. `document` is that of each row."""
        rows = levels[level]
        changed = np.flatnonzero((rows.vectors != old).any(1))
        if not len(changed):
            return
        if level == 0:
            levels[0] = self._with_edited_tokens(rows, changed, old, document)
            return
        below = levels[level - 1]
        places = ranges(rows.starts[changed], rows.starts[changed] + rows.lengths[changed])
        slots, lengths = rows.slots[places], rows.lengths[changed]
        rule = PassRule(self.settings.passing, self.known)
        before, after = (
            children_at(self.task, level, vectors[changed], slots, lengths, below.vectors, rule)
            for vectors in (old, rows.vectors)
        )
        is_child = slots >= NUM_MARKS
        moved = below.vectors.copy()
        moved[slots[is_child] - NUM_MARKS] += (after - before)[is_child]
        levels[level - 1] = replace(below, vectors=moved)

    def _with_edited_tokens(self, rows: VectorLevel, changed: Ints, old: Vectors, document: Ints) -> VectorLevel:
        """The lowest rows with the edits that turn what old vectors decode to into what new ones decode to."""
        pieces = [rows.row(number) for number in range(len(rows.lengths))]
        names = self.banks(changed, document)
        before, after = (decode_children(self.task, 0, vectors[changed], None, names) for vectors in (old, rows.vectors))
        for number, one, other in zip(changed.tolist(), before, after, strict=True):
            pieces[number] = with_edits(pieces[number], one.slots, other.slots, self.task.backbone.config.max_children[0])
        return VectorLevel(
            rows.vectors, np.concatenate([NONE, *pieces]), np.array([len(piece) for piece in pieces], dtype=np.int64)
        )


def _has_siblings(parents: VectorLevel) -> bool:
    return bool((parents.counts > 1).any())


def with_edits(given: Ints, before: Ints, after: Ints, places: int) -> Ints:
    """A row's slots with the edits that turn `before` into `after`, at their places. Edits of marks, edits behind the row's
    last child, and insertions for which the row has no place are left out."""
    edited = given.tolist()
    end = int(np.flatnonzero(given >= NUM_MARKS).max(initial=-1)) + 1
    opcodes = SequenceMatcher(None, before.tolist(), after.tolist(), autojunk=False).get_opcodes()
    # From the last edit, so that earlier places stay as they are.
    for kind, start, stop, new_start, new_stop in reversed(opcodes):
        if kind == "equal" or start > end or (start == end and kind != "insert"):
            continue
        stop, new = min(stop, end), after[new_start:new_stop].tolist()
        has_mark = any(slot < NUM_MARKS for slot in (*edited[start:stop], *new))
        if not has_mark and len(edited) - (stop - start) + len(new) <= places:
            edited[start:stop] = new
    return np.array(edited, dtype=np.int64)


def siblings_mean(parents: VectorLevel, vectors: Vectors, asked: Ints) -> Vectors:
    """The mean of the other children of the row of each of some children, which are not alone."""
    shown = vectors[parents.child]
    sums = np.zeros((len(parents.lengths), vectors.shape[1]), dtype=np.float64)
    np.add.at(sums, parents.child_row, shown)
    row = parents.child_row[asked]
    return ((sums[row] - shown[asked]) / (parents.counts[row] - 1)[:, None]).astype(np.float32)


def drawn(seed: int, units: Ints, asked: Ints, part: tuple[int, int], draw: Draw) -> NDArray[Any]:
    """Random draws for some children. The rows of `units` name the unit of each child; the draws of a unit depend on nothing
    but the seed, its name, its number of children and `part`."""
    names, unit = np.unique(units, axis=0, return_inverse=True)
    unit = unit.reshape(-1)
    found = draw(np.random.default_rng(seed), 0)
    values = np.zeros((len(units), *found.shape[1:]), dtype=found.dtype)
    for own in np.unique(unit[asked]).tolist():
        random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *names[own].tolist()], spawn_key=part)))
        places = np.flatnonzero(unit == own)
        values[places] = draw(random, len(places))
    return values[asked]


@dataclass(frozen=True)
class MaskedCopies:
    """Copies of rows, in each of which one child is masked."""

    chosen: Ints
    """The places of these children among all that are asked for."""
    rows: Rows
    slots: Int[Tensor, " slot"]
    masked: Int[Tensor, " copy"]
    """The masked slot of each copy."""


def masked_copies(task: NestedAutoencoder, level: int, parents: VectorLevel, asked: Ints) -> Iterator[MaskedCopies]:
    """Copies of the rows of some children of a level, a batch at a time. `asked` are numbers of children in the order of their
    places."""
    # As in training, the vocabulary has a mask of its own.
    mask = NUM_MARKS + task.tokenizer.mask_id if level == 0 else MASK
    padded = task.backbone.config.max_children[level] if task.backbone.config.padding == "full" else None
    # Copies of similar length are computed together.
    order = np.argsort(length_key(parents.lengths[parents.child_row[asked]]), kind="stable")
    rows = parents.child_row[asked][order]
    for start, stop in runs(parents.lengths[rows] if padded is None else np.full(len(rows), padded), TOKENS):
        own = rows[start:stop]
        lengths = parents.lengths[own]
        slots = parents.slots[ranges(parents.starts[own], parents.starts[own] + lengths)]
        begins = np.cumsum(lengths) - lengths
        masked = begins + parents.child_place[asked[order[start:stop]]] - parents.starts[own]
        slots[masked] = mask
        if padded is not None:
            table = np.full((len(own), padded), PAD)
            table[np.arange(padded) < lengths[:, None]] = slots
            masked = masked - begins + np.arange(len(own)) * padded
            slots, lengths = table.ravel(), np.full(len(own), padded)
        at = (torch.from_numpy(array).to(task.device) for array in (slots, masked))
        yield MaskedCopies(order[start:stop], Rows.build(lengths).to(task.device), *at)


@torch.no_grad()
def predicted_children(
    task: NestedAutoencoder, level: int, parents: VectorLevel, vectors: Vectors, asked: Ints, rule: PassRule
) -> Vectors:
    """The prediction of some children of a level above the tokens, each from the other children of its row, as a vector of the
    level. `asked` is as in `masked_copies`."""
    predicted = np.zeros((len(asked), vectors.shape[1]), dtype=np.float32)
    with evaluating(task):
        items = task.backbone.encoder(level).items(torch.from_numpy(vectors).to(task.device))
        for copies in masked_copies(task, level, parents, asked):
            states = task.masked_predictions(level, items, copies.slots, copies.rows, copies.masked)
            predicted[copies.chosen] = rule.masked(task, level, states).float().cpu().numpy()
    return predicted


# --- tokens ---------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def edited_tokens(editor: Copyeditor, tree: VectorTree) -> VectorLevel:
    """The lowest rows of a tree after all passes over their tokens. Rows do not depend on each other. Those that truncation
    leaves out stay as they are."""
    rows, document = tree.levels[0], tree.document_of[0]
    size = editor.task.backbone.config.vocab_size
    held = np.flatnonzero(document >= 0)
    # The rows of a document follow each other.
    _, first, own = np.unique(document[held], return_index=True, return_inverse=True)
    names = np.stack([document[held], np.arange(len(held)) - first[own]], 1)
    slots = rows.slots.copy()
    with evaluating(editor.task):
        for start, stop in runs(rows.counts[held], max(1, MAX_LOGITS // size)):
            chosen = held[start:stop]
            places = ranges(rows.starts[chosen], rows.starts[chosen] + rows.lengths[chosen])
            part = VectorLevel(rows.vectors[chosen], rows.slots[places], rows.lengths[chosen])
            tokens = TokenShares(editor, part, names[start:stop], editor.banks(chosen, document)).edited()
            slots[places[part.child_place]] = NUM_MARKS + tokens
    return replace(rows, slots=slots)


@dataclass(frozen=True)
class TokenShares:
    """The tokens of some of the lowest rows as distributions over the vocabulary."""

    editor: Copyeditor
    rows: VectorLevel
    names: Ints
    """The document of each row, and its number in it."""
    banks: Banks | None
    """The bank that the tokens of each row read."""

    def edited(self) -> Ints:
        """The likeliest token at each place after all passes."""
        settings, task = self.editor.settings, self.editor.task
        table = task.backbone.encoder(0).table.weight
        shares = F.one_hot(torch.from_numpy(self.rows.child).to(task.device), len(table) - NUM_MARKS).to(table.dtype)
        for number in range(settings.passes):
            for group in self.editor.groups(self.rows):
                at = torch.from_numpy(group).to(task.device)
                moved = shares.index_select(0, at) + settings.epsilon * self._steps(shares, group, number)
                shares = shares.index_copy(0, at, moved)
        return shares.argmax(1).cpu().numpy()

    def _steps(self, shares: Float[Tensor, "token piece"], group: Ints, number: int) -> Float[Tensor, "chosen piece"]:
        """The way from each of some tokens to its goal."""
        settings, rows = self.editor.settings, self.rows
        old = shares.index_select(0, torch.from_numpy(group).to(shares.device))
        match settings.towards:
            case "masked":
                return self._predictions(shares, group) - old
            case "siblings_mean":
                row = torch.from_numpy(rows.child_row).to(shares.device)
                sums = shares.new_zeros(len(rows.lengths), shares.shape[1]).index_add_(0, row, shares)
                own = row.index_select(0, torch.from_numpy(group).to(shares.device))
                counts = torch.from_numpy(rows.counts).to(shares.device).index_select(0, own)
                return (sums.index_select(0, own) - old) / (counts - 1)[:, None] - old
            case "random_vector":
                choices = self.editor.task.choices
                drawn = self._draws(group, number, lambda random, size: random.choice(choices, size))
                return F.one_hot(torch.from_numpy(drawn).to(shares.device), shares.shape[1]).to(shares.dtype) - old
            case "noise":
                step = self._predictions(shares, group) - old
                noise = self._draws(group, number, lambda random, size: random.standard_normal((size, shares.shape[1])))
                return F.normalize(torch.from_numpy(noise).to(step), dim=1) * torch.linalg.vector_norm(
                    step, dim=1, keepdim=True
                )

    def _draws(self, group: Ints, number: int, draw: Draw) -> NDArray[Any]:
        return drawn(self.editor.settings.seed, self.names[self.rows.child_row], group, (0, number), draw)

    def _predictions(self, shares: Float[Tensor, "token piece"], group: Ints) -> Float[Tensor, "chosen piece"]:
        """The distribution of each of some tokens, given the others of its row. Each of these shows the mean vector of its own
        distribution. Marks and special tokens are never predicted."""
        task, rows = self.editor.task, self.rows
        table = task.backbone.encoder(0).table.weight
        items = torch.cat([table, shares @ table[NUM_MARKS:]])
        slots = rows.slots.copy()
        slots[rows.child_place] = len(table) + np.arange(len(rows.child))
        banned = torch.tensor(sorted(task.tokenizer.special_ids), dtype=torch.int64, device=shares.device)
        predicted = shares.new_zeros(len(group), shares.shape[1])
        for copies in masked_copies(task, 0, VectorLevel(rows.vectors, slots, rows.lengths), group):
            row = torch.from_numpy(rows.child_row[group[copies.chosen]])
            banks = None if self.banks is None else self.banks.at(row).to(shares.device)
            states = task.masked_predictions(0, items, copies.slots, copies.rows, copies.masked, banks)
            scores = task.mlm_head(states)[:, NUM_MARKS:].index_fill(1, banned, -math.inf)
            predicted[torch.from_numpy(copies.chosen).to(shares.device)] = torch.softmax(scores, 1)
        return predicted
