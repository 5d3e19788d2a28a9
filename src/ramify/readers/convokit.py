"""ConvoKit corpora, read and written: a folder with utterances.jsonl (or .json), conversations.json, speakers.json, …

A conversation is a tree, its meta the tree's; an utterance's speaker is the node's author, its meta the node's label.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ramify.errors import RamifyError
from ramify.files import new_folder
from ramify.readers.base import Report, lacks, open_bytes
from ramify.readers.documents import documents, loads, single_value
from ramify.readers.reddit import NOBODY
from ramify.readers.rows import LABELLED, Post, batches
from ramify.readers.values import told_time
from ramify.tree import Node, Tree

_LABEL, _KIND = "label", "kind"
_ANSWERED = "parents"


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        return "" if _find(path, "utterances") else "a folder without utterances.jsonl or utterances.json"
    if not path.name.startswith("utterances.json"):
        return "not called utterances.jsonl or utterances.json"
    return "" if b'"root"' in head else lacks(path, head, b'"conversation_id"')


def read(paths: Sequence[Path], report: Report) -> Iterator[pa.RecordBatch]:
    """A path is a corpus folder. Utterances may be in any order. Pickled metadata are not loaded."""
    return batches((post for path in paths for post in _posts(path, report)), report, LABELLED)


def _find(folder: Path, name: str) -> Path | None:
    found = sorted(path for path in folder.glob(f"{name}.json*") if path.is_file())
    return found[-1] if found else None


def _posts(path: Path, report: Report) -> Iterator[Post]:
    folder = path if path.is_dir() else path.parent
    utterances = _find(folder, "utterances") if path.is_dir() else path
    if utterances is None:
        raise RamifyError(f"{path} holds no utterances.jsonl and no utterances.json: it is no ConvoKit corpus.")
    conversations = _conversations(folder, report)
    for where, document in documents(utterances, report):
        for record in document if isinstance(document, list) else [document]:
            report.read += 1
            post = _post(record, conversations, where, report) if isinstance(record, dict) else None
            if post is None:
                report.skip("not_a_post", f"{where}: no utterance with an id and a conversation: {record!r:.80}")
            else:
                yield post


def _conversations(folder: Path, report: Report) -> dict[str, Any]:
    path = _find(folder, "conversations")
    if path is None:
        return {}
    with open_bytes(path, report) as stream:
        data = single_value("Remove it to read the corpus without what it says of its conversations.").read(stream, path)
        try:
            conversations = loads(data)
        except ValueError as error:
            raise RamifyError(f"{path} is not valid JSON ({error}). Copy it again, or remove it to read without it.") from None
    return conversations if isinstance(conversations, dict) else {}


def _post(record: dict[str, Any], conversations: dict[str, Any], where: str, report: Report) -> Post | None:
    own = _name(record.get("id"))
    above = _name(record.get("reply_to", record.get("reply-to")))
    tree = _name(record.get("conversation_id", record.get("root")))
    if tree is None and above is None:
        tree = own
    if own is None or tree is None:
        return None
    speaker = record.get("speaker", record.get("user"))
    author = _name(speaker.get("id") if isinstance(speaker, dict) else speaker)
    text, kind, label = record.get("text"), None, record.get("meta")
    if isinstance(label, dict):
        if isinstance(label.get(_KIND), str):
            kind = label[_KIND]
            label = {name: value for name, value in label.items() if name != _KIND}
        label = label[_LABEL] if label.keys() == {_LABEL} else label or None
    return Post(
        id=own,
        parent=above,
        tree=tree,
        # ConvoKit's own Reddit corpora call nobody so.
        author=None if author == NOBODY else author,
        time=told_time(record.get("timestamp"), report, f"{where}: utterance {own!r}"),
        kind=kind,
        text=text if isinstance(text, str) else "",
        meta=_meta(conversations.get(tree)) if above is None else None,
        label=label,
    )


def _meta(conversation: Any) -> dict[str, Any] | None:
    """Older corpora have no "vectors" beside a conversation's meta, and no key for it."""
    if not isinstance(conversation, dict):
        return None
    meta = conversation.get("meta")
    return (meta if isinstance(meta, dict) else conversation) or None


def _name(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


# --- writing ------------------------------------------------------------------------------------------------------------


def write_convokit(trees: Iterable[Tree], out: str | Path) -> None:
    """Write trees (`store.trees()`) as a ConvoKit corpus into a new folder; `read` gives the same trees back.

    Ids that occur in several trees get the tree's id before them. An utterance answers one other at most: of several
    parents the last is kept, and all of them are named in its meta, as "parents".
    """
    with new_folder(Path(out), _refusal) as folder:
        _write(trees, folder)


def _refusal(place: Path) -> str:
    is_empty = place.is_dir() and not any(place.iterdir())
    return "" if is_empty else "exists and is not an empty folder. Name another, or remove it first."


def _write(trees: Iterable[Tree], folder: Path) -> None:
    seen: set[str] = set()
    names: set[str] = set()
    speakers: dict[str, dict[str, Any]] = {}
    in_meta: dict[str, dict[str, list[str]]] = {"utterances": {}, "conversations": {}}
    with (
        open(folder / "utterances.jsonl", "w", encoding="ascii") as utterances,
        open(folder / "conversations.json", "w", encoding="ascii") as conversations,
    ):
        conversations.write("{")
        for number, tree in enumerate(trees):
            name = tree.id or str(number)
            if name in names:
                raise RamifyError(f"two trees are called {name!r}; a corpus needs a different id for each conversation.")
            names.add(name)
            ids = [node.id or str(place) for place, node in enumerate(tree.nodes)]
            if len(set(ids)) < len(ids) or not seen.isdisjoint(ids):
                ids = [f"{name}/{id_}" for id_ in ids]
            seen.update(ids)
            for place, node in enumerate(tree.nodes):
                record = _utterance(node, ids[place], [ids[parent] for parent in node.parents or ()], name)
                in_meta["utterances"] |= {key: [] for key in record["meta"]}
                speakers.setdefault(record["speaker"], {"meta": {}, "vectors": []})
                utterances.write(json.dumps(record) + "\n")
            meta = dict(tree.meta)
            in_meta["conversations"] |= {key: [] for key in meta}
            entry = json.dumps({"meta": meta, "vectors": []})
            conversations.write(f"{',' if number else ''}\n{json.dumps(name)}: {entry}")
        conversations.write("\n}\n")
    index = {
        # A key without types stands for values of any type.
        "utterances-index": in_meta["utterances"],
        "speakers-index": {},
        "conversations-index": in_meta["conversations"],
        "overall-index": {},
        "version": 1,
        "vectors": [],
    }
    for file, content in (("speakers", speakers), ("corpus", {}), ("index", index)):
        (folder / f"{file}.json").write_text(json.dumps(content) + "\n", encoding="ascii")


def _utterance(node: Node, own: str, above: list[str], conversation: str) -> dict[str, Any]:
    label = node.label
    meta = dict(label) if isinstance(label, dict) and label.keys() != {_LABEL} else {} if label is None else {_LABEL: label}
    if node.kind:
        meta[_KIND] = node.kind
    if len(above) > 1:
        meta[_ANSWERED] = above
    return {
        "id": own,
        "conversation_id": conversation,
        "text": node.text,
        "speaker": node.author or NOBODY,
        "meta": meta,
        "reply-to": above[-1] if above else None,
        "timestamp": node.time,
        "vectors": [],
    }
