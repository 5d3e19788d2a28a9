"""Labelled data sets that are not tables: SQuAD, the nested records of SuperGLUE, folders of reviews, files of sentences, and
sentences as trees."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ramify.errors import RamifyError, shown
from ramify.readers.archives import Source, is_zip, source_of
from ramify.readers.base import Held, ReadCounts, guarded, lines, open_bytes
from ramify.readers.labelled_rows import records
from ramify.readers.labelled_sets import BY_NAME, GRADES
from ramify.readers.split_names import named
from ramify.readers.values import fields, identifier, objects, sound_tree, string
from ramify.tree import GROUP, Node, Tree

DOWNLOAD = "Download it again."

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
    for where, value in records(path, counts, "squad"):
        articles = fields(value).get("data")
        if not isinstance(articles, list):
            raise RamifyError(f'{where}: no SQuAD data, which is an object with a list "data" of articles. Name another file.')
        dataset = "squad2" if "2.0" in str(value.get("version")) or _has_impossible(articles) else "squad"
        for article, entry in enumerate(articles, 1):
            given = string(fields(entry).get("title"))
            title = given or f"article {article}"
            meta = {"title": title, GROUP: given or f"{name}/{title}"}
            for paragraph in objects(fields(entry).get("paragraphs")):
                numbers[title] += 1
                here = f"{where}, {title!r}, paragraph {numbers[title]}"
                tree_id = f"{name}/{title}/{numbers[title]:04d}"
                for nodes in guarded(_paragraph, here, counts, paragraph, tree_id, seen, here, counts):
                    yield Found(dataset, Tree(nodes, tree_id, meta), len(nodes) - 1)


def _paragraph(
    paragraph: dict[str, Any], name: str, seen: set[str], where: str, counts: ReadCounts
) -> Iterator[tuple[Node, ...]]:
    """Yield the nodes of a paragraph and its questions, unless it has no text. `seen`: the ids of earlier questions."""
    questions = objects(paragraph.get("qas"))
    context = paragraph.get("context")
    if not isinstance(context, str):
        _bad(counts, where, 'no text "context"', 1 + len(questions))
        return
    nodes = [Node(context, id=name, kind="paragraph")]
    for question in questions:
        question_id, text = identifier(question.get("id")), question.get("question")
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


def _has_impossible(articles: list[Any]) -> bool:
    paragraphs = (paragraph for article in objects(articles) for paragraph in objects(article.get("paragraphs")))
    return any(question.get("is_impossible") is True for paragraph in paragraphs for question in objects(paragraph.get("qas")))


def _answers(question: dict[str, Any], context: str, where: str, counts: ReadCounts) -> dict[str, Any] | None:
    """The texts and starts of the answers, which may be none. None for a question of a test set, whose answers are secret."""
    if "answers" not in question:
        return None
    label = {**_spans(question, "answers", "", context, where, counts), "is_impossible": question.get("is_impossible") is True}
    if "plausible_answers" in question:
        label |= _spans(question, "plausible_answers", "plausible_", context, where, counts)
    return label


def _spans(
    question: dict[str, Any],
    name: str,
    prefix: str,
    context: str,
    where: str,
    counts: ReadCounts,
    start_name: str = "answer_start",
) -> dict[str, list[Any]]:
    texts: list[str] = []
    starts: list[int] = []
    for answer in objects(question.get(name)):
        text, start = answer.get("text"), answer.get(start_name)
        if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool):
            counts.repair("bad_answer", f"{where}: an answer without text or start, which is left out")
            continue
        if context[start : start + len(text)] != text:
            counts.repair("moved_answer", f"{where}: {shown(text)} is not at {start}")
        texts.append(text)
        starts.append(start)
    return {f"{prefix}texts": texts, f"{prefix}starts": starts}


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
    files = {ending: _ending(base, ending) for ending in LINE_ALIGNED}
    columns = (_texts(file, counts, held) for file in files.values())
    for number, texts in enumerate(zip_longest(*columns), 1):
        if None in texts:
            ended = next(file for file, text in zip(files.values(), texts) if text is None)
            raise RamifyError(f"{ended} ends before line {number}, but the files beside it go on. Copy all of them again.")
        context, question, answer, span = texts
        where = f"{files['span']}, line {number}"
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


def _texts(path: Path, counts: ReadCounts, held: Held) -> Iterator[str]:
    with open_bytes(path, counts) as stream:
        for block in lines(stream, counts, path):
            held.add(path, sum(map(len, block)))
            yield from (line.decode("utf-8", "replace") for line in block)


def _of_records(
    shape: str, read: Callable[[Any, int, str, str, ReadCounts], Iterator[Found]], path: Path, name: str, counts: ReadCounts
) -> Iterator[Found]:
    """The results of a function for each record of a file, given its running number and its place."""
    for number, (where, entry) in enumerate(records(path, counts, shape), 1):
        yield from guarded(read, where, counts, entry, number, where, name, counts)


# --- SuperGLUE --------------------------------------------------------------------------------------------------------


def multirc(entry: Any, number: int, where: str, name: str, counts: ReadCounts) -> Iterator[Found]:
    """A passage is a root, its questions are children, and their answers grandchildren, labelled true or false."""
    passage = fields(fields(entry).get("passage"))
    if not isinstance(passage.get("text"), str):
        _bad(counts, where, 'no "passage" with a "text"')
        return
    tree_id = f"{name}/{_number(entry, number)}"
    nodes = [Node(passage["text"], id=tree_id, kind="passage")]
    rows = 0
    for place, question in enumerate(objects(passage.get("questions"))):
        answers = objects(question.get("answers"))
        if not isinstance(question.get("question"), str):
            _bad(counts, where, 'a question without "question"', 1 + len(answers))
            continue
        at = len(nodes)
        nodes.append(Node(question["question"], (0,), id=f"{tree_id}/{_number(question, place)}", kind="question"))
        for choice, answer in enumerate(answers):
            if not isinstance(answer.get("text"), str):
                _bad(counts, where, 'an answer without "text"')
                continue
            label = None if answer.get("label") is None else bool(answer["label"])
            answer_id = f"{nodes[at].id}/{_number(answer, choice)}"
            nodes.append(Node(answer["text"], (at,), id=answer_id, kind="answer", label=label))
            rows += 1
    counts.read += len(nodes)
    yield Found("multirc", Tree(tuple(nodes), tree_id), rows)


def record(entry: Any, number: int, where: str, name: str, counts: ReadCounts) -> Iterator[Found]:
    """A passage is a root, with the places of its entities in the metadata. Queries are children; `@placeholder` is the gap."""
    passage, queries = fields(fields(entry).get("passage")), objects(fields(entry).get("qas"))
    if not isinstance(passage.get("text"), str):
        _bad(counts, where, 'no "passage" with a "text"', 1 + len(queries))
        return
    tree_id = f"{name}/{_number(entry, number)}"
    nodes = [Node(passage["text"], id=tree_id, kind="passage")]
    for place, query in enumerate(queries):
        if not isinstance(query.get("query"), str):
            _bad(counts, where, 'a query without "query"')
            continue
        label = None
        if "answers" in query:
            label = _spans(query, "answers", "", passage["text"], where, counts, start_name="start")
        nodes.append(Node(query["query"], (0,), id=f"{tree_id}/{_number(query, place)}", kind="query", label=label))
    spans = [[entity.get("start"), entity.get("end")] for entity in objects(passage.get("entities"))]
    counts.read += len(nodes)
    yield Found("record", Tree(tuple(nodes), tree_id, {"entities": spans}), len(nodes) - 1)


def wsc(entry: Any, number: int, where: str, name: str, counts: ReadCounts) -> Iterator[Found]:
    """A sentence, labelled true if the two spans in its metadata mean the same."""
    target = fields(fields(entry).get("target"))
    if not isinstance(fields(entry).get("text"), str) or not target:
        _bad(counts, where, 'no "text" or no "target"')
        return
    tree_id = f"{name}/{_number(entry, number)}"
    label = None if entry.get("label") is None else bool(entry["label"])
    counts.read += 1
    tree = Tree((Node(entry["text"], id=tree_id, label=label),), tree_id, {"target": target})
    yield Found("wsc", sound_tree(tree, counts), 1)


# --- RACE ----------------------------------------------------------------------------------------------------------------


def race(entry: Any, number: int, where: str, name: str, counts: ReadCounts) -> Iterator[Found]:
    """An article is a root, its questions are children, and their options grandchildren, labelled true or false.

    Answers are letters. A gap `_` in a question is the place of the option.
    """
    record = fields(entry)
    questions, options, answers = (record.get(part) for part in ("questions", "options", "answers"))
    if not isinstance(record.get("article"), str) or not isinstance(questions, list) or not isinstance(options, list):
        _bad(counts, where, 'no text "article", or no lists "questions" and "options"')
        return
    tree_id = f"{name}/{number}"
    nodes = [Node(record["article"], id=tree_id, kind="article")]
    rows = 0
    letters = answers if isinstance(answers, list) else [None] * len(questions)
    for place, (question, choices, letter) in enumerate(zip_longest(questions, options, letters)):
        is_whole = isinstance(choices, list) and len(choices) > 1 and all(isinstance(choice, str) for choice in choices)
        right = ord(letter) - ord("A") if isinstance(letter, str) and len(letter) == 1 else None
        if not isinstance(question, str) or not is_whole or (right is not None and not 0 <= right < len(choices)):
            _bad(counts, where, f"question {place}: no text, no options, or no answer among them")
            continue
        at = len(nodes)
        nodes.append(Node(question, (0,), id=f"{tree_id}/{place}", kind="question"))
        if right is None:
            counts.repair("no_label", f"{where}, question {place}")
        for choice, text in enumerate(choices):
            label = None if right is None else choice == right
            nodes.append(Node(text, (at,), id=f"{tree_id}/{place}/{chr(ord('A') + choice)}", kind="choice", label=label))
        rows += 1
    counts.read += len(nodes)
    yield Found("race", Tree(tuple(nodes), tree_id), rows)


def _number(entry: dict[str, Any], otherwise: int) -> str:
    """The number of a record in its data set. The running number of records without one."""
    return identifier(entry.get("idx")) or str(otherwise)


# --- Pang and Lee -----------------------------------------------------------------------------------------------------


def reviews(path: Path, name: str, counts: ReadCounts) -> Iterator[Found]:
    """Reviews in the folders `pos` and `neg`, one per file: a ZIP file, or one of the files.

    Folders `train` and `test` around them are part of the ids, as in IMDb's reviews.
    """
    for source, member in _members(path, counts, _is_review):
        label = REVIEW_FOLDERS[_folder(source, member)]
        text = _decoded(source, member, counts)
        counts.read += 1
        tree_id = f"{_folder(source, member)}/{PurePosixPath(member).stem}"
        outer = path.resolve().parents[1].name
        dataset = "movie-reviews"
        if not is_zip(path) and named(outer):
            tree_id, dataset = f"{outer}/{tree_id}", _reviewed(path)
        yield Found(dataset, Tree((Node(text, id=tree_id, label=label),), tree_id), 1)


def _reviewed(path: Path) -> str:
    """The data set that a review in a folder `train` or `test` belongs to; "" if it is not a known one."""
    folder = re.sub(r"[^a-z0-9]", "", path.resolve().parents[2].name.lower())
    return "imdb" if folder in BY_NAME["imdb"].folders else ""


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
    with open_bytes(path, counts) as stream:
        texts = (line.decode("utf-8", "replace") for block in lines(stream, counts, path) for line in block)
        for number, text in enumerate(texts, 1):
            if not text.strip():
                continue
            start = SENTENCE_TREE.match(text)
            words: list[str] = _WORD.findall(text)
            if start is None or not words or text.count("(") != text.count(")"):
                _bad(
                    counts,
                    f"{path}, line {number}",
                    f"{shown(text, 40)} is not a sentence as a tree, such as (3 (2 Good) (2 .))",
                )
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
        return source_of(path, DOWNLOAD)

    def read(name: str, held: Held, counts: ReadCounts | None) -> bytes:
        with open_bytes(path, counts) as stream:
            return held.read(stream, path)

    return Source(path, [path.name], read)


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
    where = f"{source.path}: {name}"
    data = source.read(name, Held("holds a file of", "Cut it into shorter files."), counts)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        counts.repair("encoding", f"{where}: read as Windows-1252")
        return data.decode("cp1252", "replace")


READERS: dict[str, Callable[[Path, str, ReadCounts], Iterator[Found]]] = {
    "squad": squad,
    "squad-lines": squad_lines,
    "multirc": partial(_of_records, "multirc", multirc),
    "race": partial(_of_records, "race", race),
    "record": partial(_of_records, "record", record),
    "wsc": partial(_of_records, "wsc", wsc),
    "documents": reviews,
    "sentences": sentences,
    "sentence-trees": sentence_trees,
}
