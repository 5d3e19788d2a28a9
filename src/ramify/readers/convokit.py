"""Reading and writing of ConvoKit corpora: folders with utterances.jsonl (or .json), conversations.json, speakers.json, …

A conversation becomes a tree, and its meta the tree's meta. An utterance's speaker becomes the node's author, and its meta
the node's label.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ramify.errors import RamifyError, shown
from ramify.files import new_folder
from ramify.readers.base import ReadCounts, check_not_standard, guarded, lacks, open_bytes
from ramify.readers.documents import listed, loads, single_value
from ramify.readers.reddit import NOBODY
from ramify.readers.rows import LABELLED, Post, batches
from ramify.readers.values import parse_time
from ramify.tree import PLACEHOLDER, Node, Tree

_LABEL, _KIND = "label", "kind"
_PARENTS = "parents"


def refuses(path: Path, head: bytes) -> str:
    if path.is_dir():
        return "" if _find(path, "utterances") else "a folder without utterances.jsonl or utterances.json"
    if not path.name.startswith("utterances.json"):
        return "not named utterances.jsonl or utterances.json"
    return "" if b'"root"' in head else lacks(path, head, b'"conversation_id"')


def read(paths: Sequence[Path], counts: ReadCounts) -> Iterator[pa.RecordBatch]:
    """Read corpora. A path is a corpus folder or its `utterances.jsonl`.

    Utterances may be in any order. Pickled metadata is not loaded.
    """
    return batches((post for path in paths for post in _posts(path, counts)), counts, LABELLED)


def _find(folder: Path, name: str) -> Path | None:
    matches = sorted(path for path in folder.glob(f"{name}.json*") if path.is_file())
    return matches[-1] if matches else None


def _posts(path: Path, counts: ReadCounts) -> Iterator[Post]:
    check_not_standard(path, "a ConvoKit corpus", "it holds several files")
    utterances = _find(path, "utterances") if path.is_dir() else path
    if utterances is None:
        raise RamifyError(f"{path} holds no utterances.jsonl or utterances.json. Name the folder of a ConvoKit corpus.")
    conversations = _conversations(_find(utterances.parent, "conversations"), counts)
    for where, record in listed(utterances, counts):
        yield from guarded(_utterances, where, counts, record, conversations, where, counts)


def _utterances(record: Any, conversations: dict[str, Any], where: str, counts: ReadCounts) -> Iterator[Post]:
    post = _post(record, conversations, where, counts) if isinstance(record, dict) else None
    if post is not None and post.kind == PLACEHOLDER and post.parent is None and not post.text:
        return  # A root that `write_convokit` had to write; the join adds it again.
    counts.read += 1
    if post is None:
        counts.skip("not_a_post", f"{where}: not an utterance with an id and a conversation: {shown(record)}")
    else:
        yield post


def _conversations(path: Path | None, counts: ReadCounts) -> dict[str, Any]:
    if path is None:
        return {}
    with open_bytes(path, counts) as stream:
        data = single_value("Remove it to read the corpus without metadata of conversations.").read(stream, path)
        try:
            conversations = loads(data)
        except ValueError as error:
            raise RamifyError(
                f"{path} is not valid JSON ({error}). Copy it again, or remove it to read the corpus without it."
            ) from None
    return conversations if isinstance(conversations, dict) else {}


def _post(record: dict[str, Any], conversations: dict[str, Any], where: str, counts: ReadCounts) -> Post | None:
    post_id = _name(record.get("id"))
    parent = _name(record.get("reply_to", record.get("reply-to")))
    tree = _name(record.get("conversation_id", record.get("root")))
    if tree is None and parent is None:
        tree = post_id
    if post_id is None or tree is None:
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
        id=post_id,
        parent=parent,
        tree=tree,
        # ConvoKit's own Reddit corpora use this name for deleted accounts.
        author=None if author == NOBODY else author,
        time=parse_time(record.get("timestamp"), counts, f"{where}: utterance {post_id!r}"),
        kind=kind,
        text=text if isinstance(text, str) else "",
        meta=_meta(conversations.get(tree)) if parent is None else None,
        label=label,
    )


def _meta(conversation: Any) -> dict[str, Any] | None:
    """The meta of a conversation. Older corpora store it without "vectors" and without the key "meta"."""
    if not isinstance(conversation, dict):
        return None
    meta = conversation.get("meta")
    return (meta if isinstance(meta, dict) else conversation) or None


def _name(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


# --- writing ------------------------------------------------------------------------------------------------------------


def write_convokit(trees: Iterable[Tree], out: str | Path) -> None:
    """Write trees (`store.trees()`) as a ConvoKit corpus into a new folder. `read` returns the same trees.

    Ids that occur in several trees are prefixed with the tree's id. An utterance has at most one parent. If a node has several,
    the last is written as "reply-to", and the list is written to the utterance's meta as "parents".
    """
    with new_folder(Path(out), _refusal) as folder:
        _write(trees, folder)


def _refusal(place: Path) -> str:
    is_empty = place.is_dir() and not any(place.iterdir())
    return "" if is_empty else "exists and is not an empty folder. Name another folder, or remove it first."


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
                raise RamifyError(f"two trees have the id {name!r}, but conversations of a corpus need different ids.")
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
        # A key without types allows values of any type.
        "utterances-index": in_meta["utterances"],
        "speakers-index": {},
        "conversations-index": in_meta["conversations"],
        "overall-index": {},
        "version": 1,
        "vectors": [],
    }
    for file, content in (("speakers", speakers), ("corpus", {}), ("index", index)):
        (folder / f"{file}.json").write_text(json.dumps(content) + "\n", encoding="ascii")


def _utterance(node: Node, post_id: str, parents: list[str], conversation: str) -> dict[str, Any]:
    label = node.label
    is_meta = isinstance(label, dict) and label and label.keys() != {_LABEL} and not label.keys() & {_KIND, _PARENTS}
    meta = dict(label) if is_meta else {} if label is None else {_LABEL: label}
    if node.kind:
        meta[_KIND] = node.kind
    if len(parents) > 1:
        meta[_PARENTS] = parents
    return {
        "id": post_id,
        "conversation_id": conversation,
        "text": node.text,
        "speaker": node.author or NOBODY,
        "meta": meta,
        "reply-to": parents[-1] if parents else None,
        "timestamp": node.time,
        "vectors": [],
    }
