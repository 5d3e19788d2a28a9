"""Labelled data sets that are not tables: SQuAD, RACE, the nested records of SuperGLUE, folders of reviews, files of sentences,
and sentences as trees."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, zip_longest
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

from ramify.errors import RamifyError, shown
from ramify.readers.archives import Source, from_folder, is_zip, source_of
from ramify.readers.base import Held, ReadCounts, guarded, lines, open_bytes
from ramify.readers.json_fields import at
from ramify.readers.labelled_rows import records
from ramify.readers.labelled_sets import BY_NAME, GRADES
from ramify.readers.split_names import named
from ramify.readers.values import fields, identifier, objects, sound_tree, string
from ramify.tree import GROUP, Node, Tree

LINE_ALIGNED = ("context", "question", "answer", "span")
"""Endings of the files of tokenised questions. Line n of each file belongs to question n."""

SENTENCE_FILES = {
    "rt-polarity.pos": ("sentence-polarity", "positive"),
    "rt-polarity.neg": ("sentence-polarity", "negative"),
    "plot.tok.gt9.5000": ("subjectivity", "objective"),
    "quote.tok.gt9.5000": ("subjectivity", "subjective"),
}
"""Name of a file with one sentence per line -> its data set and the label of its sentences."""
PLAYS = "plays"
"""The shape of an archive that is distributed with Pang and Lee's data, but holds documents."""

REVIEW_FOLDERS = {"pos": "positive", "neg": "negative"}
"""Folder of reviews, one per file -> their label."""
UNLABELLED_REVIEWS = "unsup"
"""Folder of reviews without a label."""

SENTENCE_TREE = re.compile(r"\(([0-4]) (?=\S)")
"""The beginning of a sentence with the grade of each phrase: (3 (2 It) (4 (2 's) (4 fun)))."""
_WORD = re.compile(r"\([0-4] ([^()\s]+)\)")
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}


class Found(NamedTuple):
    """A tree, the data set that it belongs to, and its number of labelled texts."""

    dataset: str
    tree: Tree
    rows: int


def _bad(counts: ReadCounts, where: str, reason: str, count: int = 1) -> None:
    counts.leave_out("not_a_post", f"{where}: {reason}", count)


# --- SQuAD ------------------------------------------------------------------------------------------------------------


def squad(path: Path, name: str, counts: ReadCounts) -> Iterator[Found]:
    """A paragraph is a root, and its questions are children. The group of a tree is the title of the article,
    which files share."""
    seen: set[str] = set()
    numbers: Counter[str] = Counter()
    places = count(1)
    for where, value in records(path, counts, "squad"):
        articles = fields(value).get("data")
        if not isinstance(articles, list):
            raise RamifyError(f'{where}: no SQuAD data, which is an object with a list "data" of articles. Name another file.')
        paragraphs = (each for entry in objects(articles) for each in objects(entry.get("paragraphs")))
        asked = (question for paragraph in paragraphs for question in objects(paragraph.get("qas")))
        is_second = "2.0" in str(value.get("version")) or any(question.get("is_impossible") is True for question in asked)
        for entry, article in zip(map(fields, articles), places):
            given = string(entry.get("title"))
            if given is None:
                counts.repair("no_title", f"{where}, article {article}")
            title = given or f"article {article}"
            meta = {"title": title, GROUP: given or f"{name}/{title}"}
            for paragraph in objects(entry.get("paragraphs")):
                numbers[title] += 1
                here = f"{where}, {title!r}, paragraph {numbers[title]}"
                tree_id = f"{name}/{title}/{numbers[title]:04d}"
                for nodes in guarded(_paragraph, here, counts, paragraph, tree_id, seen, here, counts):
                    yield Found("squad2" if is_second else "squad", Tree(nodes, tree_id, meta), len(nodes) - 1)


def _paragraph(
    paragraph: dict[str, Any], name: str, seen: set[str], where: str, counts: ReadCounts
) -> Iterator[tuple[Node, ...]]:
    """Yield the nodes of a paragraph and its questions, unless it has no text. `seen`: the ids of earlier questions."""
    questions, context = objects(paragraph.get("qas")), paragraph.get("context")
    if not isinstance(context, str):
        _bad(counts, where, 'no text "context"', 1 + len(questions))
        return
    nodes = [Node(context, id=name, kind="paragraph")]
    for question in questions:
        if "id" not in question and isinstance(question.get("question"), str):
            counts.repair("no_id", f"{where}, question {len(nodes)}")
        question_id, text = identifier(question.get("id", f"{name}/{len(nodes)}")), question.get("question")
        if question_id is None or not isinstance(text, str):
            _bad(counts, where, 'a question without "id" or "question"')
        elif question_id in seen:
            counts.leave_out("duplicate_id", f"{where}, question {question_id}")
        else:
            seen.add(question_id)
            label = _answers(question, context, f"{where}, question {question_id}", counts)
            nodes.append(Node(text, (0,), id=question_id, kind="question", label=label))
    counts.read += len(nodes)
    yield tuple(nodes)


def _answers(question: dict[str, Any], context: str, where: str, counts: ReadCounts) -> dict[str, Any] | None:
    """The texts and starts of the answers, which may be none. None for a question of a test set, whose answers are secret."""
    if "answers" not in question:
        return None
    label = {**_spans(question["answers"], context, where, counts), "is_impossible": question.get("is_impossible") is True}
    if "plausible_answers" in question:
        plausible = _spans(question["plausible_answers"], context, where, counts)
        label |= {f"plausible_{name}": values for name, values in plausible.items()}
    return label


def _spans(answers: Any, context: str, where: str, counts: ReadCounts, name: str = "answer_start") -> dict[str, list[Any]]:
    """The texts of the answers, and where they start in the context. `name`: the field with the start."""
    spans: list[tuple[str, int]] = []
    for answer in objects(answers):
        text, start = answer.get("text"), answer.get(name)
        if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool):
            counts.repair("bad_answer", f"{where}: an answer without text or start, which is left out")
            continue
        if context[start : start + len(text)] != text:
            counts.repair("moved_answer", f"{where}: {shown(text)} is not at {start}")
        spans.append((text, start))
    return {"texts": [text for text, _ in spans], "starts": [start for _, start in spans]}


def line_aligned(path: Path) -> Path | None:
    """The path without its ending if it is one of four line-aligned files that lie together. So is the result itself."""
    base = path.with_suffix("") if path.suffix[1:] in LINE_ALIGNED else path
    return base if all(_ending(base, name).is_file() for name in LINE_ALIGNED) else None


def _ending(base: Path, name: str) -> Path:
    return base.with_name(f"{base.name}.{name}")


def squad_lines(base: Path, name: str, counts: ReadCounts) -> Iterator[Found]:
    """Tokenised questions with token spans (start and inclusive end). Questions about one paragraph become one tree.

    All paragraphs and questions are held, because those of a paragraph may be anywhere in the files.
    """
    held = Held("and the files beside it hold", "Cut them into shorter files.")
    trees: dict[str, list[Node]] = {}
    files = [_ending(base, ending) for ending in LINE_ALIGNED]
    for number, texts in enumerate(zip_longest(*(_lines(file, counts, held) for file in files)), 1):
        if None in texts:
            ended = files[texts.index(None)]
            raise RamifyError(f"{ended} ends before line {number}, but the files beside it go on. Copy all of them again.")
        context, question, answer, span = texts
        where = f"{files[-1]}, line {number}"
        places = [int(word) if word.isascii() and word.isdigit() else -1 for word in span.split()]
        tokens = context.split(" ")
        if len(places) != 2 or min(places) < 0 or max(places) >= len(tokens):
            _bad(counts, where, f"{shown(span, 40)} is not the first and the last token of an answer")
            continue
        start = len(" ".join(tokens[: places[0]])) + (places[0] > 0)
        if " ".join(tokens[places[0] : places[1] + 1]) != answer:
            counts.repair("moved_answer", f"{where}: {shown(answer)} is not at the tokens {span}")
        nodes = trees.setdefault(context, [Node(context, id=f"{name}/{len(trees) + 1:06d}", kind="paragraph")])
        label = {"texts": [answer], "starts": [start], "token_spans": [places], "is_impossible": False}
        nodes.append(Node(question, (0,), id=f"{name}/{number}", kind="question", label=label))
    for nodes in trees.values():
        counts.read += len(nodes)
        yield Found("squad-lines", Tree(tuple(nodes), nodes[0].id), len(nodes) - 1)


def _lines(path: Path, counts: ReadCounts, held: Held | None = None) -> Iterator[str]:
    with open_bytes(path, counts) as stream:
        for block in lines(stream, counts, path):
            if held:
                held.add(path, sum(map(len, block)))
            yield from (line.decode("utf-8", "replace") for line in block)


# --- SuperGLUE and RACE -----------------------------------------------------------------------------------------------


class Level(NamedTuple):
    """The texts at one depth of nested records."""

    kind: str
    text: str
    """The field with the text."""
    below: str
    """The field with the records one level deeper; "" at the deepest level."""
    label: Literal["none", "truth", "answers"] = "none"
    is_row: bool = False
    """Whether the published numbers count these texts."""


LEVELS: dict[str, tuple[Level, ...]] = {
    "multirc": (
        Level("passage", "passage.text", "passage.questions"),
        Level("question", "question", "answers"),
        Level("answer", "text", "", "truth", is_row=True),
    ),
    # `@placeholder` in a query is the gap.
    "record": (Level("passage", "passage.text", "qas"), Level("query", "query", "", "answers", is_row=True)),
    "wsc": (Level("", "text", "", "truth", is_row=True),),
    # A gap `_` in a question is the place of the choice.
    "race": (
        Level("article", "article", "questions"),
        Level("question", "question", "options", is_row=True),
        Level("choice", "text", "", "truth"),
    ),
}
"""Shape of a data set -> the levels of its records: that of the roots, that of their children, and so on."""


def _nested(shape: str, path: Path, name: str, counts: ReadCounts) -> Iterator[Found]:
    for number, (where, value) in enumerate(records(path, counts, shape), 1):
        yield from guarded(_record, where, counts, shape, fields(value), number, where, name, counts)


def _record(shape: str, value: dict[str, Any], number: int, where: str, name: str, counts: ReadCounts) -> Iterator[Found]:
    """The tree of a record, unless its root has no text."""
    prepared, meta = _PREPARE[shape](value, where, counts) if shape in _PREPARE else (value, {})
    if prepared is None:
        return
    tree_id = f"{name}/{_number(prepared, number)}"
    nodes: list[Node] = []
    rows = 0
    waiting: list[tuple[int, tuple[int, ...], str, dict[str, Any]]] = [(0, (), tree_id, prepared)]
    while waiting:
        depth, parents, node_id, item = waiting.pop()
        level = LEVELS[shape][depth]
        text, below = at(item, level.text), objects(at(item, level.below)) if level.below else []
        if not isinstance(text, str):
            _bad(counts, where, f'no {level.kind} with a text "{level.text}"', 1 + len(below))
            continue
        label = None
        if level.label == "truth" and item.get("label") is not None:
            label = bool(item["label"])
        elif level.label == "answers" and "answers" in item:
            label = _spans(item["answers"], nodes[0].text, where, counts, "start")
        inside = [(depth + 1, (len(nodes),), f"{node_id}/{_number(each, place)}", each) for place, each in enumerate(below)]
        waiting += reversed(inside)
        nodes.append(Node(text, parents, id=node_id, kind=level.kind, label=label))
        rows += level.is_row
    if nodes:
        counts.read += len(nodes)
        yield Found(shape, sound_tree(Tree(tuple(nodes), tree_id, meta), counts), rows)


def _number(entry: dict[str, Any], otherwise: int) -> str:
    """The number of a record in its data set. The running number of records without one."""
    return identifier(entry.get("idx")) or str(otherwise)


Prepared = tuple[dict[str, Any] | None, dict[str, Any]]
"""A record as `LEVELS` describes it (None if it was counted as bad), and the metadata of its tree."""


def _with_entities(value: dict[str, Any], where: str, counts: ReadCounts) -> Prepared:
    return value, {"entities": [[each.get("start"), each.get("end")] for each in objects(at(value, "passage.entities"))]}


def _with_target(value: dict[str, Any], where: str, counts: ReadCounts) -> Prepared:
    """A sentence, labelled true if the two spans in its metadata mean the same."""
    if isinstance(value.get("text"), str) and fields(value.get("target")):
        return value, {"target": value["target"]}
    _bad(counts, where, 'no "text" or no "target"')
    return None, {}


def _with_choices(value: dict[str, Any], where: str, counts: ReadCounts) -> Prepared:
    """An article with lists of questions, of their options, and of answers, which are letters."""
    questions, options, answers = (value.get(part) for part in ("questions", "options", "answers"))
    if not isinstance(value.get("article"), str) or not isinstance(questions, list) or not isinstance(options, list):
        _bad(counts, where, 'no text "article", or no lists "questions" and "options"')
        return None, {}
    asked = []
    letters = answers if isinstance(answers, list) else [None] * len(questions)
    for place, (question, choices, letter) in enumerate(zip_longest(questions, options, letters)):
        is_whole = isinstance(choices, list) and len(choices) > 1 and all(isinstance(choice, str) for choice in choices)
        right = ord(letter) - ord("A") if isinstance(letter, str) and len(letter) == 1 else None
        if not isinstance(question, str) or not is_whole or (right is not None and not 0 <= right < len(choices)):
            _bad(counts, where, f"question {place}: no text, no options, or no answer among them")
            continue
        if right is None:
            counts.repair("no_label", f"{where}, question {place}")
        truths = [None if right is None else number == right for number in range(len(choices))]
        marked = [
            {"text": text, "idx": chr(ord("A") + number), "label": truth}
            for number, (text, truth) in enumerate(zip(choices, truths, strict=True))
        ]
        asked.append({"question": question, "idx": place, "options": marked})
    return {"article": value["article"], "questions": asked}, {}


_PREPARE: dict[str, Callable[[dict[str, Any], str, ReadCounts], Prepared]] = {
    "record": _with_entities,
    "wsc": _with_target,
    "race": _with_choices,
}

# --- Pang and Lee -----------------------------------------------------------------------------------------------------


def reviews(path: Path, name: str, counts: ReadCounts) -> Iterator[Found]:
    """Reviews in the folders `pos` and `neg`, one per file: a ZIP file, or one of the files.

    Folders `train` and `test` around them are part of the ids, as in IMDb's reviews.
    """
    for source, member in _members(path, counts, _is_review):
        folder = _folder(source, member)
        tree_id, dataset = f"{folder}/{PurePosixPath(member).stem}", "movie-reviews"
        outer = path.resolve().parents[1]
        if not is_zip(path) and named(outer.name):
            tree_id = f"{outer.name}/{tree_id}"
            dataset = "imdb" if re.sub(r"[^a-z0-9]", "", outer.parent.name.lower()) in BY_NAME["imdb"].folders else ""
        text = _decoded(source, member, counts)
        counts.read += 1
        yield Found(dataset, Tree((Node(text, id=tree_id, label=REVIEW_FOLDERS[folder]),), tree_id), 1)


def beside_reviews(path: Path) -> bool:
    """Whether a file in a folder of reviews is not a labelled review: it lists links, or is a review without a label."""
    if path.suffix != ".txt" or path.parent.name in REVIEW_FOLDERS:
        return False
    folders = (path.parent.parent if path.parent.name == UNLABELLED_REVIEWS else path.parent, path.parent / "train")
    return any(all((folder / name).is_dir() for name in REVIEW_FOLDERS) for folder in folders)


def sentences(path: Path, name: str, counts: ReadCounts) -> Iterator[Found]:
    """Files with one sentence per line and one label: a ZIP file, or one of the files."""
    for source, member in _members(path, counts, _is_sentences):
        file = PurePosixPath(member).name
        dataset, label = SENTENCE_FILES[file]
        for number, line in enumerate(_decoded(source, member, counts).removesuffix("\n").split("\n"), 1):
            counts.read += 1
            tree_id = f"{file}/{number:05d}"
            yield Found(dataset, Tree((Node(line.strip(), id=tree_id, label=label),), tree_id), 1)


def sentence_trees(path: Path, name: str, counts: ReadCounts) -> Iterator[Found]:
    """One sentence per line, with a grade for each phrase. The label is that of the whole sentence; phrases are not texts."""
    for number, text in enumerate(_lines(path, counts), 1):
        if not text.strip():
            continue
        start = SENTENCE_TREE.match(text)
        words: list[str] = _WORD.findall(text)
        if start is None or not words or text.count("(") != text.count(")"):
            reason = f"{shown(text, 40)} is not a sentence as a tree, such as (3 (2 Good) (2 .))"
            _bad(counts, f"{path}, line {number}", reason)
            continue
        counts.read += 1
        sentence = " ".join(_BRACKETS.get(word, word.replace("\\", "")) for word in words)
        tree_id = f"{name}/{number:05d}"
        yield Found("sst5", Tree((Node(sentence, id=tree_id, label=GRADES[start[1]]),), tree_id), 1)


def shape_of(path: Path) -> str | None:
    """`documents` or `sentences` for a ZIP file or a file of Pang and Lee's data; `PLAYS`, or None for others."""
    source = _source(path)
    if any(_is_sentences(source, name) for name in source.names):
        return "sentences"
    if any(_is_review(source, name) for name in source.names):
        return "documents"
    return PLAYS if any(PurePosixPath(name).name == "play.dtd" for name in source.names) else None


def _source(path: Path) -> Source:
    if is_zip(path):
        return source_of(path, "Download it again.")
    return Source(path, [path.name], from_folder(path.parent))


def _members(path: Path, counts: ReadCounts, fits: Callable[[Source, str], bool]) -> Iterator[tuple[Source, str]]:
    source = _source(path)
    for name in source.names:
        if fits(source, name):
            yield source, name
        else:
            counts.leave_out("other_file", f"{path}: {name}")


def _folder(source: Source, name: str) -> str:
    return PurePosixPath(name).parent.name or source.path.resolve().parent.name


def _is_review(source: Source, name: str) -> bool:
    return name.endswith(".txt") and _folder(source, name) in REVIEW_FOLDERS


def _is_sentences(source: Source, name: str) -> bool:
    return PurePosixPath(name).name in SENTENCE_FILES


def _decoded(source: Source, name: str, counts: ReadCounts) -> str:
    """The text of a file in UTF-8, or in Windows-1252, as the first editions are."""
    data = source.read(name, Held("holds a file of", "Cut it into shorter files."), counts)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        counts.repair("encoding", f"{source.path}: {name}: read as Windows-1252")
        return data.decode("cp1252", "replace")


READERS: dict[str, Callable[[Path, str, ReadCounts], Iterator[Found]]] = {
    "squad": squad,
    "squad-lines": squad_lines,
    **{shape: partial(_nested, shape) for shape in LEVELS},
    "documents": reviews,
    "sentences": sentences,
    "sentence-trees": sentence_trees,
}
