"""Input and notes that the commands on models of nested documents share."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ramify.errors import RamifyError, counted

if TYPE_CHECKING:
    from ramify.inference.documents.pipeline import AnyDocumentPipeline
    from ramify.readers.base import ReadCounts
    from ramify.tokenizer import UnknownTokens
    from ramify.tree import Tree

Run = Annotated[str, typer.Argument(help="A run of `ramify train agent`, or a saved model.")]

File = Annotated[
    Path | None,
    typer.Argument(
        help="Plain text, in which a blank line ends a paragraph; any file that `ramify data build --format book` reads; a "
        "JSON lines file of documents; or - for stdin.",
    ),
]

Data = Annotated[
    Path | None, typer.Option("--data", help="A data set built by `ramify data build`, in place of FILE. See --tree.")
]

TreeId = Annotated[str | None, typer.Option("--tree", help="Id of the document, if there are several.")]

SEVERAL = 5
"""Number of ids that a message lists."""


def read_document(model: Any, file: Path | None, data: Path | None, tree: str | None) -> "Tree":
    """The document of FILE, or of --data and --tree. Repairs and omissions of the reader are printed on stderr."""
    if file is None and data is None:
        raise RamifyError("Missing argument 'FILE'. Name a file, or a document of a data set with --data and --tree.")
    if file is not None and data is not None:
        raise RamifyError(f"FILE {file} and --data {data} both name a document. Leave out one of them.")
    if data is not None:
        return _of_data_set(data, tree)
    assert file is not None
    return _of_file(model, file, tree)


def _of_data_set(data: Path, tree: str | None) -> "Tree":
    from ramify.batching.levels import check_documents
    from ramify.dataset.store import Store

    store = Store.open(data)
    check_documents(store)
    if tree is not None:
        return store.tree(store.find_tree(tree))
    if store.num_trees != 1:
        raise RamifyError(f"{data} holds {counted(store.num_trees, 'document')}: {_some(store)}. Choose one with --tree.")
    return store.tree(0)


def _some(store: Any) -> str:
    names = store.tree_ids(range(min(SEVERAL, store.num_trees)))
    return ", ".join(map(repr, names)) + (", …" if store.num_trees > SEVERAL else "")


def _of_file(model: "AnyDocumentPipeline", file: Path, tree: str | None) -> "Tree":
    from ramify.dataset.store import INFO_FILE
    from ramify.readers import book
    from ramify.readers.base import ReadCounts
    from ramify.readers.jsonl import read_jsonl

    if (file / INFO_FILE).exists():
        raise RamifyError(f"{file} is a data set. Name it with --data, and a document of it with --tree.")
    counts = ReadCounts()
    if ".jsonl" in file.suffixes:
        trees = read_jsonl(file)
    else:
        trees = book.read_text(file, counts, levels=_reader_levels(model.levels))
    chosen: list[Tree] = []
    names: list[str] = []
    for document in trees:
        names.append(repr(document.id))
        if tree is None or document.id == tree:
            chosen.append(document)
    say_omissions(counts)
    if not names:
        raise RamifyError(f"{file} holds no text. Choose another file.")
    if len(chosen) == 1:
        return chosen[0]
    some = ", ".join(names[:SEVERAL]) + (", …" if len(names) > SEVERAL else "")
    missing = "" if tree is None else f"no document {tree!r}, but "
    raise RamifyError(f"{file} holds {missing}{counted(len(names), 'document')}: {some}. Choose one with --tree.")


def _reader_levels(levels: tuple[str, ...]) -> tuple[str, ...]:
    """The levels into which a file is divided: those of the model, from the highest to the lowest."""
    from ramify.readers.book.levels import DEFAULT_LEVELS, PARAGRAPH, SENTENCE
    from ramify.tree import DOCUMENT

    divisions = tuple(name for name in reversed(levels) if name != DOCUMENT)
    return divisions if divisions and divisions[-1] in (PARAGRAPH, SENTENCE) else DEFAULT_LEVELS


def say_omissions(counts: "ReadCounts") -> None:
    """Print the counts of all that a reader left out or repaired on stderr."""
    for title, by_reason in (("left out", counts.skipped), ("repaired", counts.kept)):
        for reason, count in by_reason.items():
            where = next(iter(counts.examples.get(reason, ())), "")
            print(f"{title}: {count:,} {reason.replace('_', ' ')}{where and f' (first: {where})'}", file=sys.stderr)


def say_unknown(unknown: "UnknownTokens", source: str) -> None:
    for note in unknown.notes(source):
        print(f"note: {note}", file=sys.stderr)


def say_left_out(children: int) -> None:
    if children:
        print(
            f"note: {children:,} tokens or nodes past the ends of rows are left out, because the model was trained with "
            "input.overflow=truncate.",
            file=sys.stderr,
        )
