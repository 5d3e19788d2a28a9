"""Assignment of trees to train, dev and test: as the data say, or else by a hash of their ids.

The hashes of a split are a range. A split that no hash falls into takes the group whose hash is nearest to its range.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ramify.dataset.chunk import ADDED, Chunk, Mask
from ramify.dataset.store import SPLITS
from ramify.errors import RamifyError, counted
from ramify.readers.base import pc
from ramify.readers.listing import list_files
from ramify.readers.split_names import SPELLINGS, in_name, named
from ramify.tree import GROUP, SPLIT, Indices

MAX_TABLE_BYTES = 256 << 20

TRAIN, DEV, TEST = range(len(SPLITS))

GIVEN = "split"
"""The column of rows that holds the index of the split that their input file names."""

NONE, FILE = "none", "file"
"""Values of `split_by`: all trees are in train; the name of each input file or folder names the split."""

TITLE = "title"
"""The key of a tree's title in its metadata."""
REST = "*"
"""Stands for all other trees in a table of splits."""

DEFAULT_SHARES = (0.9, 0.05, 0.05)
FOLD_DEV = 0.1
"""The share of dev if a fold is the test split."""

MAX_FOLDS = 100

DIVIDED = "divided_group"
"""The reason under which a build counts groups whose trees lie in several splits, because the data give these."""

FILLED = "filled_split"
"""The reason under which a build counts groups that were moved into a split, because it would be empty."""


@dataclass(frozen=True, eq=False)
class Group:
    """Trees whose ids, or whose group's id, have this hash, as far as the hash decides on their split."""

    hash: int
    name: str
    """The id of the first tree."""
    trees: Indices
    """The numbers of the trees in the store."""
    nodes: int
    """The number of their nodes, without roots that were added."""


@dataclass(frozen=True)
class Fold:
    """One of several parts of the data, from 1, each of which is the test split once."""

    number: int
    of: int

    @classmethod
    def named(cls, text: str) -> "Fold":
        """Read "2/5". Raises `RamifyError` for anything else."""
        number, slash, of = text.partition("/")
        if not (slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of) and 2 <= int(of) <= MAX_FOLDS):
            raise RamifyError(
                f"--fold {text!r:.40} is not a part of the data. Expected, say, 1/5 to 5/5 (at most {MAX_FOLDS} folds)."
            )
        return cls(int(number), int(of))

    @property
    def shares(self) -> tuple[float, float, float]:
        return 1 - 1 / self.of - FOLD_DEV, FOLD_DEV, 1 / self.of


@dataclass(frozen=True)
class Move:
    """A group that goes to another split than that of its hash. The splits are indices into SPLITS."""

    group: Group
    old: int
    new: int


class Splitter:
    """Assigns trees to splits.

    `shares` are those of train, dev and test by the hash of a tree's group (None: `DEFAULT_SHARES`). With a `fold`, the ranges
    of the hashes are turned, so that the test splits of all folds share no tree and hold all. Unless `split_by` is `none`,
    splits that the data give take precedence: in the metadata of trees (`split`), in the column that `by_file` adds, or in the
    table `split_by`.
    """

    def __init__(self, shares: Sequence[float] | None, split_by: str | None, fold: Fold | None = None) -> None:
        if fold is not None and (shares is not None or split_by is not None):
            other = "--split" if shares is not None else f"--split-by {split_by}"
            raise RamifyError(
                f"--fold {fold.number}/{fold.of} gives the shares of all splits, and so does {other}. Leave one out."
            )
        self._asked = shares is not None or fold is not None
        self._fold = fold
        shares = fold.shares if fold else shares
        shares = DEFAULT_SHARES if shares is None else shares
        if len(shares) != len(SPLITS) or min(shares) < 0 or not abs(sum(shares) - 1) <= 1e-6:
            raise RamifyError(
                f"split={tuple(shares)} is not three shares ({', '.join(SPLITS)}) that sum to 1. Use, say, 0.9,0.05,0.05."
            )
        self.shares = shares
        self._option = f"--split {','.join(f'{share:g}' for share in shares)}"
        if fold:
            self._option = f"--fold {fold.number}/{fold.of}"
        self._given: set[str | None] = set()
        self._takes_dev = False
        self.all_train = split_by == NONE
        self.table = read_table(Path(split_by)) if split_by and is_table(split_by) else None
        self._path = split_by
        self._limits = np.cumsum(shares)
        self.divided: list[str] = []
        """The names of the groups whose trees lie in several splits."""
        self._trees = np.zeros(len(SPLITS), dtype=np.int64)
        self._by_hash = 0
        # By split: the number of groups that are there by their hash, and the first two and the last two of them.
        self._num_groups = [0] * len(SPLITS)
        self._outermost: list[list[Group]] = [[] for _ in SPLITS]

    def see(self, metas: pa.Array) -> None:
        """Learn which splits the metadata of trees give, of all trees before any is split."""
        if self._asked and self._path is None:
            for meta in metas.filter(_gives_split(metas)).to_pylist():
                self._given.add(named(str(json.loads(meta).get(SPLIT))))

    def seen(self, unsplit: Mapping[str, str]) -> None:
        """Decide whether dev is taken out of train: the data give train and test, but no dev, and shares are given.

        The hashes of the training trees then decide, by dev's share among train and dev. Raises `RamifyError` if the shares do
        not allow this. `unsplit`: see `readers.Format`.
        """
        if self._given - {None} != {"train", "test"}:
            return
        remedy = (
            f"To take dev out of train, give --split, such as --split 0.9,0.1,0. To divide all trees, {_no_splits(unsplit)}, "
            "which mixes the given test split into train."
        )
        if self._fold is not None:
            raise RamifyError(f"{self._option} makes another part of the data the test split, but the data give one. {remedy}")
        train, dev, _ = self.shares
        if not train + dev:
            raise RamifyError(f"{self._option} leaves nothing for train and dev, but the data give train. {remedy}")
        self._takes_dev = True
        self.shares = train / (train + dev), dev / (train + dev), 0.0
        self._limits = np.cumsum(self.shares)

    def split(self, chunk: Chunk) -> NDArray[np.int8]:
        """[tree]: an index into SPLITS. Raises `RamifyError` if the data give a split that does not exist.

        The chunks of a data set come in the order of their hashes.
        """
        split, by_hash = self._assign(chunk)
        self._find_divided(chunk, split)
        for number in range(len(SPLITS)):
            trees = np.flatnonzero(by_hash & (split == number))
            hashes = np.unique(chunk.hashes[trees])
            self._num_groups[number] += len(hashes)
            outermost = self._outermost[number]
            for value in hashes if len(hashes) < 4 else hashes[[0, 1, -2, -1]]:
                outermost.append(self._group(chunk, trees[chunk.hashes[trees] == value]))
            del outermost[2:-2]
        self._trees += np.bincount(split, minlength=len(SPLITS))
        self._by_hash += int(by_hash.sum())
        return split

    def _find_divided(self, chunk: Chunk, split: NDArray[np.int8]) -> None:
        """Note the groups that the data divide. All trees of a group are in one chunk, side by side."""
        if not len(split):
            return
        starts = np.flatnonzero(np.diff(chunk.hashes, prepend=~chunk.hashes[:1]))
        is_divided = np.minimum.reduceat(split, starts) != np.maximum.reduceat(split, starts)
        for tree in starts[is_divided].tolist():
            self.divided.append(json.loads(chunk.metas[tree].as_py() or "{}").get(GROUP) or chunk.tree_ids[tree].as_py())

    def fill(self) -> list[Move]:
        """Moves after which no split with a share is empty, if at least as many groups are split by their hashes.

        A split that is empty takes the group whose hash is nearest to its range, from a split that keeps another one. So other
        trees move as little as possible when trees are added.
        """
        if sum(self._num_groups) < np.count_nonzero(self.shares):
            return []
        # The test splits of all folds are to be the whole data.
        fixed = {TEST} if self._fold else set()
        moves: list[Move] = []
        # The last split first: it takes the last group of train, and dev takes the one before.
        for new in reversed(range(len(SPLITS))):
            if self._trees[new] or not self.shares[new] or new in fixed:
                continue
            candidates = [
                (old, group)
                for old in {*range(len(SPLITS))} - fixed
                if self._num_groups[old] > 1
                for group in self._outermost[old]
            ]
            if not candidates:
                continue
            old, group = min(candidates, key=lambda candidate: self._distance(candidate[1], new))
            self._num_groups[old] -= 1
            self._outermost[old].remove(group)
            moves.insert(0, Move(group, old, new))
            self._trees[[old, new]] += len(group.trees) * np.array([-1, 1])
        return moves

    def notes(self, unsplit: Mapping[str, str], *, by_shares: bool) -> list[str]:
        """Notes for people: dev is taken out of train, the data divide groups, given shares decide on no tree, or a split is
        empty although it has a share.

        `unsplit`: see `readers.Format`. `by_shares`: given shares divide data whose files name a single split. To be called
        last.
        """
        giver, remedy = "the data give", _no_splits(unsplit)
        num_held = np.count_nonzero(self._trees)
        if self._path is not None:
            giver, remedy = f"--split-by {self._path} gives", f"leave out --split-by {self._path}"
        elif by_shares and not self._asked and num_held == 1:
            remedy = "give --split, such as --split 0.7,0.15,0.15"
        if num_held > 1 and self._trees[TEST]:
            remedy = f"{remedy}, which mixes the given test split into train"
        given = f"because {giver} the split of every tree. To divide the trees by shares, {remedy}."
        notes = [*self._notes_on_dev()]
        told = {SPLITS[DEV]} if notes and not self._by_hash else set()
        if self.divided:
            lie = "lie" if len(self.divided) > 1 else "lies"
            notes.append(
                f"{counted(len(self.divided), 'group')} of trees, such as {self.divided[0]!r:.80}, {lie} in several splits, "
                f"because {giver} them, so held-out scores may be too good. To keep groups whole, {remedy}."
            )
        if self._asked and not self._by_hash:
            notes.append(f"{self._option} has no effect, {given}")
            told = {*SPLITS}
        empty = [name for name, share, held in zip(SPLITS, self.shares, self._trees) if share and not held and name not in told]
        if empty:
            listed = f"split {empty[0]} is" if len(empty) == 1 else f"splits {' and '.join(empty)} are"
            if self._by_hash:
                notes.append(f"the {listed} empty. Change the shares (--split), or give the splits (--split-by).")
            elif not self.all_train:
                notes.append(f"the {listed} empty, {given}")
        return notes

    def _notes_on_dev(self) -> Iterator[str]:
        """The effect of shares on data that give train and test only."""
        if self._takes_dev and not self.shares[DEV]:
            yield (
                f"the data give train and test but no dev, and {self._option} gives dev no share. To take dev out of train, "
                "give it one, such as --split 0.9,0.1,0; the test split stays as it is."
            )
        elif self._takes_dev:
            num_dev = counted(int(self._trees[DEV]), "tree")
            yield (
                f"the data give train and test but no dev, so {self._option} takes dev out of train: {num_dev} of "
                f"{self._by_hash:,}, by a share of {self.shares[DEV]:.3g}. The test split stays as the data give it."
            )
        elif not self._asked and self._path is None and not self._by_hash and (self._trees > 0).tolist() == [True, False, True]:
            yield (
                "there is no dev split, because the data give train and test only. To take dev out of train, give --split, "
                "such as --split 0.9,0.1,0; the test split stays as it is."
            )

    def _turned(self, share: NDArray[np.float64]) -> NDArray[np.float64]:
        """Hashes as shares of 1; with a fold, its part comes last."""
        return share if self._fold is None else (share - self._fold.number / self._fold.of) % 1.0

    def _distance(self, group: Group, split: int) -> float:
        """The distance from the hash of a group to the range of a split, as a share of all hashes."""
        share, stop = float(self._turned(np.array([group.hash / 2.0**64]))[0]), self._limits[split]
        return max(stop - self.shares[split] - share, share - stop)

    def _group(self, chunk: Chunk, trees: Indices) -> Group:
        nodes = np.isin(chunk.tree, trees) & (chunk.state != ADDED)
        first = int(trees[0])
        return Group(int(chunk.hashes[first]), chunk.tree_ids[first].as_py(), trees + self._trees.sum(), int(nodes.sum()))

    def _assign(self, chunk: Chunk) -> tuple[NDArray[np.int8], Mask]:
        """[tree]: an index into SPLITS, and whether the hash decides on it."""
        num_trees = len(chunk.lengths)
        given = np.zeros(num_trees, dtype=bool)
        if self.all_train:
            return np.zeros(num_trees, dtype=np.int8), given
        if self.table is not None:
            named_trees = zip(chunk.tree_ids.to_pylist(), chunk.metas.to_pylist(), strict=True)
            return np.array([self._listed(name, meta) for name, meta in named_trees], dtype=np.int8), given
        if GIVEN in chunk.content.column_names:
            # A root that was added has no file of its own.
            of_node = pc.fill_null(chunk.content[GIVEN].chunk(0).take(pa.array(chunk.rows)), -1).to_numpy()
            return np.maximum.reduceat(of_node, np.cumsum(chunk.lengths) - chunk.lengths).astype(np.int8), given
        share = self._turned(chunk.hashes.astype(np.float64) / 2.0**64)
        split = np.minimum(np.searchsorted(self._limits, share, side="right"), len(SPLITS) - 1).astype(np.int8)
        for tree in np.flatnonzero(_gives_split(chunk.metas).to_numpy(zero_copy_only=False)).tolist():
            value = json.loads(chunk.metas[tree].as_py()).get(SPLIT)
            if value is None:
                continue
            number = _index(value, f"tree {chunk.tree_ids[tree]}")
            if not self._takes_dev or number != TRAIN:
                split[tree], given[tree] = number, True
        return split, ~given

    def _listed(self, tree: str, meta: str | None) -> int:
        """The split of a tree by its id, or else by its title, its group, or the rest."""
        assert self.table is not None
        if tree in self.table:
            return self.table[tree]
        names = [*_names(meta)]
        for name in (*names, REST):
            if name in self.table:
                return self.table[name]
        also = f", nor for its title or group {names[0]!r:.80}" if names else ""
        raise RamifyError(
            f"--split-by {self._path} names no split for the tree {tree!r}{also}. Add it to the file, or add `{REST}` for all "
            "other trees, or leave --split-by out."
        )


def _gives_split(metas: pa.Array) -> pa.Array:
    """Whether the metadata of each tree may name its split."""
    return pc.fill_null(pc.match_substring(metas, f'"{SPLIT}"'), False)


def _names(meta: str | None) -> Iterator[str]:
    """The title and the group of a tree, as far as its metadata hold them."""
    values = json.loads(meta) if meta else {}
    yield from (values[name] for name in (TITLE, GROUP) if isinstance(values.get(name), str))


def _no_splits(unsplit: Mapping[str, str]) -> str:
    """The advice by which the data give no split."""
    options = [f"--option {name}={value}" for name, value in unsplit.items()]
    return " ".join(["give", *options]) if options else "remove `split` from the metadata of the trees"


def is_table(split_by: str) -> bool:
    return split_by not in (NONE, FILE) and Path(split_by).is_file()


def read_table(path: Path) -> Mapping[str, int]:
    """Id, title or group of trees -> index of their split, from JSON (`{"id": "train"}` or `{"train": ["id"]}`) or from rows
    of a name and a split, with tabs or commas between them. `REST` stands for all other trees."""
    if path.stat().st_size > MAX_TABLE_BYTES:
        raise RamifyError(f"--split-by {path} is larger than {MAX_TABLE_BYTES >> 20} MiB. Name a table of tree ids and splits.")
    text = path.read_bytes().decode("utf-8-sig", "replace")
    splits: dict[str, int] = {}
    for where, name, split in _json_pairs(text, path) if text.lstrip().startswith("{") else _row_pairs(text, path):
        number = _index(split, where)
        if splits.setdefault(name, number) != number:
            raise RamifyError(f"{where}: the tree {name!r} is in {SPLITS[splits[name]]} already. Leave one of them out.")
    if not splits:
        raise RamifyError(f"--split-by {path} names no tree. Expected rows of a tree's id and train, dev or test.")
    return splits


def _json_pairs(text: str, path: Path) -> Iterator[tuple[str, str, Any]]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RamifyError(f"--split-by {path} is not valid JSON ({error}).") from None
    for key, value in values.items():
        if isinstance(value, list):
            yield from ((f"{path}, {key!r}", str(name), key) for name in value)
        else:
            yield f"{path}, {key!r}", key, value


def _row_pairs(text: str, path: Path) -> Iterator[tuple[str, str, Any]]:
    delimiter = "\t" if "\t" in text.partition("\n")[0] else ","
    for number, row in enumerate(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), 1):
        if not row:
            continue
        if len(row) != 2:
            raise RamifyError(
                f"{path}, row {number}: {counted(len(row), 'field')}. Expected two: a tree's id, and train, dev or test."
            )
        if number == 1 and named(row[1]) is None:
            continue  # the names of the columns
        yield f"{path}, row {number}", row[0], row[1]


def _index(value: Any, where: str) -> int:
    split = named(value) if isinstance(value, str) else None
    if split is None:
        known = ", ".join(word for words in SPELLINGS.values() for word in words)
        raise RamifyError(
            f"{where}: the split {value!r:.80} does not exist. Expected one of {known}; --split-by none puts all trees in "
            "train."
        )
    return SPLITS.index(split)


def by_file(paths: Sequence[Path]) -> dict[int, list[Path]]:
    """Index of a split -> the input files or folders that name it.

    If a folder names none, each file in it has to. Raises `RamifyError` if one does not.
    """
    files: dict[int, list[Path]] = {}
    for path in paths:
        inside = list_files([path]) if path.is_dir() and in_name(path) is None else [path]
        for file in inside:
            split = in_name(file)
            if split is None:
                raise RamifyError(
                    f"--split-by file: the name of {file} names no split. Rename it so that it holds the word train, dev, val "
                    "or test, or leave the file out."
                )
            files.setdefault(SPLITS.index(split), []).append(file)
    return files
