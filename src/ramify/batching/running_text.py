"""A store as running text: the tokens of a split in stored order, with the borders of sentences, paragraphs and documents."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ramify.batching.characters import Lexicon
from ramify.batching.forest import Ints, ranges, token_cache
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError
from ramify.readers.base import pc
from ramify.readers.sentences import sentences
from ramify.tokenizer import Tokenizer
from ramify.tree import GROUP

SENTENCE = "sentence"
"""The kind of nodes that hold one sentence each."""


@dataclass(frozen=True)
class RunningText:
    """The tokens of many documents, one after the other. All borders count from 0 and end with the number of elements.

    A document is the lowest division that holds paragraphs (a chapter), a discussion, or a file; a paragraph is a paragraph or
    a post. Parts without tokens are left out.
    """

    ids: NDArray[np.unsignedinteger]
    """Token ids, without special tokens but for marks at the ends of paragraphs and documents."""
    sentences: Ints
    """Sentence s is `ids[sentences[s] : sentences[s + 1]]`."""
    paragraphs: Ints
    """Paragraph p holds the sentences `paragraphs[p]` to `paragraphs[p + 1] - 1`."""
    documents: Ints
    """Document d holds the sentences `documents[d]` to `documents[d + 1] - 1`."""
    lexicon: Lexicon | None = None
    """The characters of all tokens, if words that the vocabulary lacks have numbers of their own in `ids`."""

    @classmethod
    def open(
        cls, store: Store, tokenizer: Tokenizer, split: Split, *, marks: bool = False, open_words: bool = False
    ) -> "RunningText":
        """Read a split, tokenized sentence by sentence. The ids of a store are computed once per tokenizer.

        With `marks`, each document ends with the tokenizer's end-of-document token and each other paragraph with its
        end-of-paragraph token, as far as the tokenizer has them. `open_words`: for a model that reads characters, words that
        the vocabulary lacks have ids. Raises `RamifyError` if the split has no tokens.
        """
        divided = not (store.structure == "document" and _has_sentences(store))
        tokenized = token_cache(store, tokenizer, by_sentence if divided else None, open_words=open_words)
        ids, starts = tokenized.ids, tokenized.starts
        trees = store.split(split)
        chosen = ranges(store.offsets[trees], store.offsets[trees + 1])
        last = np.cumsum(tokenized.counts)
        sentences = ranges((last - tokenized.counts)[chosen], last[chosen])
        sentences = sentences[starts[sentences + 1] > starts[sentences]]
        if not len(sentences):
            raise RamifyError(
                f"{store.path or 'the data'} has no text in the split {split!r}. Choose another split, or build the data again "
                "with a larger share for it (ramify data build --split …)."
            )
        paragraph, document = _structure(store, np.searchsorted(last, sentences, side="right"))
        new_paragraph, new_document = _changes(paragraph), _changes(document)
        new_paragraph |= new_document
        last_of_document = np.append(new_document[1:], True)
        last_of_paragraph = np.append(new_paragraph[1:], True)
        mark = np.full(len(sentences), -1)
        if marks:
            for ends, token_id in ((last_of_paragraph, tokenizer.eop_id), (last_of_document, tokenizer.eod_id)):
                if token_id is not None:
                    mark[ends] = token_id
        lengths = starts[sentences + 1] - starts[sentences]
        highest = tokenizer.vocab_size + len(tokenized.words)
        text = np.empty(int((lengths + (mark >= 0)).sum()), dtype=np.uint16 if highest <= 2**16 else np.uint32)
        borders = np.concatenate([[0], np.cumsum(lengths + (mark >= 0))])
        is_mark = np.zeros(len(text), dtype=bool)
        is_mark[borders[1:][mark >= 0] - 1] = True
        text[is_mark] = mark[mark >= 0]
        text[~is_mark] = ids[ranges(starts[sentences], starts[sentences + 1])]
        return cls(
            ids=text,
            sentences=borders,
            paragraphs=np.append(np.flatnonzero(new_paragraph), len(sentences)),
            documents=np.append(np.flatnonzero(new_document), len(sentences)),
            lexicon=Lexicon.of(tokenizer, tokenized.words) if open_words else None,
        )

    @property
    def num_tokens(self) -> int:
        return len(self.ids)

    @property
    def document_ends(self) -> Ints:
        """The position after the last token of each document."""
        return self.sentences[self.documents[1:]]


def _structure(store: Store, node: Ints) -> tuple[Ints, Ints]:
    """The paragraph and the document of each sentence, as numbers that change where the next one begins."""
    if store.structure == "document":
        parent = store.parent
        paragraph = node
        if _has_sentences(store):
            is_sentence = pc.equal(store.column("kind", node), SENTENCE).to_numpy(zero_copy_only=False)
            paragraph = np.where(is_sentence, parent[node], node)
        above = parent[paragraph]
        return paragraph, np.where(above < 0, paragraph, above)
    tree = store.tree_of(node)
    return node, _groups(store, tree) if store.structure == "texts" else tree


def _groups(store: Store, tree: Ints) -> Ints:
    """The group of the tree of each text. Trees without a group are groups of their own."""
    trees, place = np.unique(tree, return_inverse=True)
    numbers: dict[str, int] = {}
    groups = np.empty(len(trees), dtype=np.int64)
    for start in range(0, len(trees), 8192):
        for index, meta in enumerate(store.metas(trees[start : start + 8192]), start):
            group = meta.get(GROUP)
            groups[index] = numbers.setdefault(f"={index}" if group is None else f"group={group}", len(numbers))
    return groups[place]


def _has_sentences(store: Store) -> bool:
    kinds = store.column("kind", np.arange(store.num_nodes))
    return bool(pc.any(pc.equal(kinds, SENTENCE)).as_py())


def by_sentence(text: str) -> list[str]:
    """The sentences of a text. A line break ends a sentence."""
    return [sentence for line in text.splitlines() if line.strip() for sentence in sentences(line)]


def _changes(values: Ints) -> NDArray[np.bool_]:
    """Whether each value differs from the one before it. The first one counts as different."""
    return np.append(True, values[1:] != values[:-1])
