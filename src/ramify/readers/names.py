"""Names of files, from which the names of trees are made."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

PACKED = (".gz", ".bz2", ".xz", ".zst")


def unpacked(name: str) -> str:
    """A file's name without the suffix of its compression."""
    return next((name.removesuffix(ending) for ending in PACKED if name.endswith(ending)), name)


def distinct_names(paths: Iterable[Path], short: Iterable[str]) -> list[str]:
    """The short names of files, with as many folders as are needed to distinguish files of the same name.

    Files that no folder distinguishes get their whole paths.
    """
    paths, short = list(paths), list(short)
    names = short[:]
    for folders in range(1, max((len(path.parts) for path in paths), default=0)):
        times = Counter(names)
        if max(times.values()) == 1:
            break
        for place, path in enumerate(paths):
            if times[names[place]] > 1:
                above = path.parts[: max(0, len(path.parts) - len(Path(short[place]).parts))]
                names[place] = "/".join([*above[-folders:], short[place]])
    times = Counter(names)
    return [name if times[name] == 1 else str(path) for name, path in zip(names, paths)]
