"""Print the words that `ramify.disentangle.data.names` never treats as names, counted on chat logs.

    python benchmarks/reserved_words.py LOG… > src/ramify/disentangle/data/reserved.txt

The shipped list was counted on the training logs of the Ubuntu IRC disentanglement data (Kummerfeld et al. 2019, CC BY 4.0).
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from ramify.disentangle.data.names import find_common_words
from ramify.readers import irc
from ramify.readers.base import ReadCounts
from ramify.tree import Node


def messages(paths: list[Path]) -> Iterator[Node]:
    for log in irc.logs(paths, ReadCounts(), annotations="none"):
        yield from log.messages


if __name__ == "__main__":
    print("\n".join(find_common_words(messages([Path(path) for path in sys.argv[1:]]))))
