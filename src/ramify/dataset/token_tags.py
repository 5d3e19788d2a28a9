"""Tags of the tokens of texts: from tables of tokens (the format conll), or from spans that are annotated by characters.

Tags of spans are written as BIO here, whichever scheme the data have. Other tags, such as parts of speech, stay as they are.
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from ramify.dataset.bio import OUTSIDE, TokenSpan, bio_tags, spans_of, tag_parts
from ramify.dataset.labels import NodeSpans, Span, at_node, labelled_nodes, node_spans, of_same_kind
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted
from ramify.readers.conll import TAGS, TOKENS

Words = Int[NDArray, "_word 2"]
"""Where the words of a text begin and end, in characters."""

Scheme = Literal["spans", "plain"]
"""Tags that mark spans (BIO), or tags that stand alone, such as parts of speech."""

JOINER = "\N{ZERO WIDTH JOINER}"
MODIFIERS = range(0x1F3FB, 0x1F400)
"""The colours of skin that modify an emoji."""

APOSTROPHES = "'’"

_ALONE = (range(0x3040, 0x3100), range(0x3400, 0x4DC0), range(0x4E00, 0xA000), range(0xF900, 0xFB00), range(0x20000, 0x32000))
"""Kana and ideographs, which are written without spaces: each is a word."""


@dataclass(frozen=True, eq=False)
class NodeTags:
    """The tagged nodes of a split, in ascending order, with their words and the tag of each word."""

    nodes: Int[NDArray, " node"]
    words: list[Words]
    tags: list[list[str]]
    scheme: Scheme
    unlabelled: int
    faults: Counter[str] = field(default_factory=Counter)
    """Annotated spans that tags cannot express: `overlapping` another, longer one, or holding no word (`empty`). They are left
    out. Spans whose ends lie inside words are widened (`widened`). Tags that are not BIO are rewritten (`rewritten`)."""

    def with_words(self) -> "NodeTags":
        """The texts that have words. The others count as faults (`wordless`)."""
        places = np.flatnonzero([bool(row) for row in self.tags])
        left_out = len(self.tags) - len(places)
        return replace(self.at(places), faults=self.faults + Counter({"wordless": left_out}))

    def at(self, places: Int[NDArray, " chosen"]) -> "NodeTags":
        """Some of the texts. The counts stay those of the whole."""
        return replace(
            self,
            nodes=self.nodes[places],
            words=[self.words[place] for place in places.tolist()],
            tags=[self.tags[place] for place in places.tolist()],
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for people."""
        said = {
            "overlapping": "{} a longer one and {} left out: a word has one tag.",
            "empty": "{} no word and {} left out.",
            "widened": "{} inside a word and {} widened to whole words.",
            "rewritten": "{} other schemes than BIO and {} rewritten as BIO.",
            "wordless": "{} no word and {} left out.",
        }
        verbs = {
            "overlapping": ("overlaps", "overlap"),
            "empty": ("holds", "hold"),
            "widened": ("begins or ends", "begin or end"),
            "rewritten": ("has tags of", "have tags of"),
            "wordless": ("has", "have"),
        }
        notes = []
        for fault, count in self.faults.items():
            what = counted(count, "text" if fault in ("rewritten", "wordless") else "annotated span")
            verb, state = verbs[fault][count != 1], "is" if count == 1 else "are"
            notes.append(f"{what} {said[fault].format(verb, state)}")
        return tuple(notes)


def node_tags(store: Store, split: Split, field: str = "") -> NodeTags:
    """The tags of the words in the trees of a split.

    A table of tokens gives its tokens as words, and `field` names another list of tags than `tags`. For annotated spans, words
    are those of `words_of`, and `field` chooses their tags as in `node_spans`. Raises `RamifyError` if no node has a label, for
    labels that are neither, for tokens without tags, and for tokens that do not lie in their text.
    """
    nodes, labels, others = labelled_nodes(store, split)
    _check_texts(store)
    if not _is_table(json.loads(labels[0])):
        return _of_spans(store, node_spans(store, split, field))
    name = field or TAGS
    kept: list[int] = []
    words: list[Words] = []
    tags: list[list[str]] = []
    for node, label, text in zip(nodes.tolist(), labels, store.texts(nodes), strict=True):
        table = _table(store, node, label, text, name)
        if table is not None:
            kept.append(node)
            words.append(table[0])
            tags.append(table[1])
    if not kept:
        raise RamifyError(
            f"{store.path or 'the data'}, split {split}: the tokens of {counted(len(nodes), 'text')} have no tags"
            f"{f' in the field {field!r}' if field else ''}. Build the data from files with a column of tags (--option "
            "tags=N), or choose another split."
        )
    taken = np.array(kept, dtype=np.int64)
    unlabelled = of_same_kind(store, taken, np.concatenate([others, np.setdiff1d(nodes, taken)]))
    if scheme_of(tags) == "plain":
        return NodeTags(taken, words, tags, "plain", unlabelled)
    written = [bio_tags(spans_of(row), len(row)) for row in tags]
    changed = sum(row != before for row, before in zip(written, tags, strict=True))
    return NodeTags(taken, words, written, "spans", unlabelled, Counter({"rewritten": changed} if changed else {}))


def node_words(store: Store, nodes: Int[NDArray, " node"]) -> tuple[list[Words], list[bool]]:
    """The words of nodes, and whether each is a table of tokens, which names its words. Tags are not read."""
    words, are_tables = [], []
    labels = store.column("label", nodes).to_pylist()
    for node, text, label in zip(nodes.tolist(), store.texts(nodes), labels, strict=True):
        table: Any = None if label is None else json.loads(label)
        is_table = _is_table(table)
        if is_table:
            _check_texts(store)
        words.append(_places(store, node, table, text) if is_table else words_of(text))
        are_tables.append(is_table)
    return words, are_tables


def words_of(text: str) -> Words:
    """The words of a text: runs of letters and digits, and every other mark that is no white space.

    An apostrophe between letters belongs to the word. Kana and ideographs are words of their own. Combining marks, and the
    parts of a joined emoji, stay together.
    """
    words: list[list[int]] = []
    run = False
    """Whether a letter would continue the last word."""
    for place, letter in enumerate(text):
        kind = unicodedata.category(letter)
        adjacent = bool(words) and words[-1][1] == place
        if kind[0] in "ZC" and letter != JOINER:
            run = False
        elif adjacent and (kind[0] == "M" or letter == JOINER or ord(letter) in MODIFIERS or text[place - 1] == JOINER):
            words[-1][1] = place + 1
        elif kind[0] in "LNM" and not any(ord(letter) in block for block in _ALONE):
            if run and adjacent:
                words[-1][1] = place + 1
            else:
                words.append([place, place + 1])
            run = True
        elif letter in APOSTROPHES and run and adjacent and text[place + 1 : place + 2].isalpha():
            words[-1][1] = place + 1
        elif letter != JOINER:
            words.append([place, place + 1])
            run = False
    return np.array(words, dtype=np.int64).reshape(-1, 2)


def scheme_of(tags: Iterable[Sequence[str]]) -> Scheme:
    """Whether all tags are those of spans, and one marks a span."""
    distinct = {tag for row in tags for tag in row}
    try:
        kinds = [tag_parts(tag) for tag in distinct]
    except ValueError:
        return "plain"
    return "spans" if any(prefix != OUTSIDE for prefix, _ in kinds) else "plain"


def _check_texts(store: Store) -> None:
    """Raise `RamifyError` if texts were changed after they were annotated, so that the places in labels are wrong."""
    cleanings = store.info.get("options", {}).get("clean")
    if cleanings:
        raise RamifyError(
            f"{store.path}: --clean {','.join(cleanings)} changed the texts, but labels hold places in the original texts. "
            "Build the data without --clean."
        )


def _is_table(label: Any) -> bool:
    return isinstance(label, dict) and TOKENS in label


def _table(store: Store, node: int, label: str, text: str, name: str) -> tuple[Words, list[str]] | None:
    """The places and the tags of a table's tokens; None: they have no tags."""
    table = json.loads(label)
    if not _is_table(table):
        raise RamifyError(
            f"{at_node(store, node)}: the label {label:.80} is no table of tokens, but that of the first labelled text is. "
            "Build one data set from files of one kind."
        )
    tags = table.get(name)
    if tags is None:
        return None
    places = _places(store, node, table, text)
    if not isinstance(tags, list) or len(tags) != len(places) or not all(isinstance(tag, str) and tag for tag in tags):
        raise RamifyError(
            f"{at_node(store, node)}: {name} is {tags!r:.80}, not one tag for each of {counted(len(places), 'token')}. Choose "
            f"another field with --label, such as {TAGS}, or build the data again."
        )
    return places, tags


def _places(store: Store, node: int, table: dict[str, Any], text: str) -> Words:
    """The places of a table's tokens. Raises `RamifyError` if they do not lie in the text, one after the other."""
    try:
        places = np.array(table[TOKENS], dtype=np.int64).reshape(-1, 2)
    except (TypeError, ValueError, OverflowError):
        places = np.array([[0, -1]])
    flat = places.ravel()
    if (np.diff(flat) < 0).any() or (len(flat) and (flat[0] < 0 or flat[-1] > len(text))):
        raise RamifyError(
            f"{at_node(store, node)}: its tokens {table[TOKENS]!r:.80} are no ascending places in its text of "
            f"{counted(len(text), 'character')}. Was the text changed after it was read? Build the data again."
        )
    return places


def _of_spans(store: Store, annotated: NodeSpans) -> NodeTags:
    words, tags = [], []
    faults = Counter[str]()
    for node, text, spans in zip(annotated.nodes.tolist(), store.texts(annotated.nodes), annotated.spans, strict=True):
        if wrong := next((span for span in spans if not 0 <= span.start <= span.end <= len(text)), None):
            raise RamifyError(
                f"{at_node(store, node)}: the span from {wrong.start} to {wrong.end} does not lie in its text of "
                f"{counted(len(text), 'character')}. Was the text changed after it was read? Build the data again."
            )
        its_words = words_of(text)
        words.append(its_words)
        tags.append(bio_tags(_on_words(its_words, spans, faults), len(its_words)))
    return NodeTags(annotated.nodes, words, tags, "spans", annotated.unlabelled, +faults)


def _on_words(words: Words, spans: Sequence[Span], faults: Counter[str]) -> list[TokenSpan]:
    """The words of each span. Of spans that overlap, the longest is kept; of equally long ones, the first."""
    taken = np.zeros(len(words), dtype=bool)
    kept: list[TokenSpan] = []
    for span in sorted(spans, key=lambda span: (span.start - span.end, span.start)):
        start, stop = int(np.searchsorted(words[:, 1], span.start, "right")), int(np.searchsorted(words[:, 0], span.end))
        if stop <= start or span.start == span.end:
            faults["empty"] += 1
        elif taken[start:stop].any():
            faults["overlapping"] += 1
        else:
            faults["widened"] += bool(words[start, 0] < span.start or words[stop - 1, 1] > span.end)
            taken[start:stop] = True
            kept.append(TokenSpan(start, stop, span.tag))
    return sorted(kept)
