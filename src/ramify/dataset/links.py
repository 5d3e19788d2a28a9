"""The check that replies and posts fit together: nearly all parents of a table being unknown means that ids were misread."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from ramify.dataset.chunk import Mask
from ramify.errors import RamifyError
from ramify.readers.base import Policy, pc
from ramify.tree import Indices

MAX_UNKNOWN = 0.9
"""The share of unknown parents from which a build is refused."""
MIN_REPLIES = 10
"""The smallest number of replies for which the share decides. Ids that differ in spelling decide for any number."""
SAMPLE = 200

_REDDIT_PREFIX = re.compile(r"t[0-9]_")
_AFFIX = re.compile(r"^[a-z]{1,12}[0-9]?[_:#/-]+|\.0$")


@dataclass
class Links:
    """Counts, over all parts of a build, of the replies and of those whose parent no post of the tree has.

    `direct` replies name the tree as their parent, which needs no post.
    """

    replies: int = 0
    direct: int = 0
    unknown: int = 0
    # A parent, and an id of the same tree that is spelled almost alike.
    alike: tuple[str, str] | None = None
    # A parent, its tree, and another tree with a post of this id.
    elsewhere: tuple[str, str, str] | None = None

    def add(self, content: pa.Table, tree: Indices, tree_ids: pa.Array, replies: int, direct: int, unknown: Mask) -> None:
        """Count the replies of a part. `tree` and `unknown` are over the rows of `content`."""
        rows = np.flatnonzero(unknown)
        self.replies += replies
        self.direct += direct
        self.unknown += len(rows)
        if self.alike is None and self.elsewhere is None and len(rows) >= MAX_UNKNOWN * max(replies - direct, 1):
            self._look_for_causes(
                content, tree, tree_ids, rows[np.linspace(0, len(rows) - 1, min(SAMPLE, len(rows)), dtype=int)]
            )

    def _look_for_causes(self, content: pa.Table, tree: Indices, tree_ids: pa.Array, sample: Indices) -> None:
        near = np.flatnonzero(np.isin(tree, tree[sample]))
        ids = zip(tree[near].tolist(), content["id"].take(pa.array(near)).to_pylist(), strict=True)
        by_spelling = {(of, _plain(name)): name for of, name in ids}
        parents = list(zip(tree[sample].tolist(), content["parent"].take(pa.array(sample)).to_pylist(), strict=True))
        alike = [(name, by_spelling[of, _plain(name)]) for of, name in parents if (of, _plain(name)) in by_spelling]
        if 2 * len(alike) >= len(sample):
            self.alike = alike[0]
            return
        rows = pc.index_in(pa.array([name for _, name in parents], pa.string()), value_set=content["id"].chunk(0))
        known = [(name, of, row) for (of, name), row in zip(parents, rows.to_pylist(), strict=True) if row is not None]
        if 2 * len(known) >= len(sample):
            name, of, row = known[0]
            self.elsewhere = name, tree_ids[of].as_py(), content["tree"][row].as_py()

    def check(self, paths: Sequence[Path], policy: Policy) -> None:
        """Raise `RamifyError` if nearly all parents are unknown."""
        if self.alike is not None:
            is_lost = self.unknown >= MAX_UNKNOWN * (self.replies - self.direct)
        else:
            is_lost = self.replies >= MIN_REPLIES and self.unknown >= MAX_UNKNOWN * self.replies
            is_lost = is_lost and (policy.orphan != "drop" or self.elsewhere is not None)
        if not is_lost:
            return
        raise RamifyError(
            f"{', '.join(map(str, paths))}: {self.unknown:,} of {self.replies:,} replies answer a post that is not in their "
            f"tree, so the structure would be lost. {self._cause()}"
        )

    def _cause(self) -> str:
        if self.alike is not None:
            parent, name = self.alike
            remedy = "Spell both alike."
            if _REDDIT_PREFIX.match(parent) or _REDDIT_PREFIX.match(name):
                remedy = "Call the columns id, link_id and parent_id, as Reddit does, or remove the prefixes."
            return f"The cause is the spelling of ids: a parent is {parent!r}, and a post is {name!r}. {remedy}"
        if self.elsewhere is not None:
            parent, its_tree, other = self.elsewhere
            return (
                f"The cause is the column of the tree: a reply in the tree {its_tree!r} answers {parent!r} in the "
                f"tree {other!r}. Name the column that all posts of a discussion share (--column tree=NAME)."
            )
        return (
            "Likely causes are that parents refer to another column than the id (name it with --column id=NAME), or that the "
            "input is a sample of the posts (read whole discussions, or leave such replies out with --policy orphan=drop)."
        )


def _plain(name: str) -> str:
    """An id without case, white space, the prefix of a kind, and the decimals of a number."""
    return _AFFIX.sub("", name.strip().casefold())
