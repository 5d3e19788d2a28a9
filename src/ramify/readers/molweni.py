"""Molweni: windows of chat logs with discourse relations, JSON `[{"id", "edus": [{"text", "speaker"}], "relations"}]`.

A dialogue is a forest. The parents of an utterance are the sources of its relations, and several utterances may have none. The
label lists the relations: [{"parent", "type"}]. Windows overlap. Dialogues that share utterances have the same "group" in meta.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ramify.errors import shown
from ramify.readers.base import Held, ReadCounts, guarded, lacks
from ramify.readers.documents import listed
from ramify.readers.listing import list_files
from ramify.readers.values import spelled
from ramify.tree import Node, Tree, encodable


def refuses(path: Path, head: bytes) -> str:
    return lacks(path, head, b'"edus"', b'"speaker"')


def read(
    paths: Sequence[Path],
    counts: ReadCounts,
    *,
    annotations: Literal["relations", "none"] = "relations",
    repeated: Literal["keep", "drop"] = "keep",
) -> Iterator[Tree]:
    """Read dialogues, with the relations that annotators found, or with unknown parents.

    A relation that does not lead from an earlier utterance to a later one is left out and counted in `counts.kept`. Windows
    overlap, so that many relations are in several dialogues. `repeated=drop` keeps the first one between two utterances in the
    labels. Its repetitions are counted (`repeated_relation`); they remain links to parents.
    """
    dialogues = []
    held = Held("and the files before it have", "Build from fewer or smaller files.")
    for path in list_files(paths):
        for where, record in listed(path, counts, held):
            dialogues += guarded(_dialogue, where, counts, record, where, counts)
    groups = _groups([record["edus"] for _, record in dialogues])
    seen: set[Any] = set()
    for number, (where, record) in enumerate(dialogues):
        name = _name(record, number)
        first = dialogues[groups[number]][1]
        tree = _tree(record, name, {"group": _name(first, groups[number])}, where, counts)
        if repeated == "drop":
            tree = _without_repeated(tree, seen, f"{where}, dialogue {name}", counts)
        if annotations == "none":
            tree = replace(tree, nodes=tuple(replace(node, parents=None, label=None) for node in tree.nodes))
        yield tree


def _dialogue(record: Any, where: str, counts: ReadCounts) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(record, dict) or not isinstance(record.get("edus"), list):
        counts.leave_out("not_a_post", f'{where}: not an object with a list "edus"')
        return []
    return [(where, record)]


def _tree(record: dict[str, Any], name: str, meta: dict[str, Any], where: str, counts: ReadCounts) -> Tree:
    utterances = record["edus"]
    counts.read += len(utterances)
    relations: list[list[dict[str, Any]]] = [[] for _ in utterances]
    listed = record.get("relations") or []
    for relation in listed if isinstance(listed, list) else [listed]:
        source, target = (relation.get("x"), relation.get("y")) if isinstance(relation, dict) else (None, None)
        if not (type(source) is int and type(target) is int and 0 <= source < target < len(utterances)):
            counts.repair("bad_relation", f"{where}, dialogue {name}: {shown(relation)}")
            continue
        relations[target].append({"parent": str(source), "type": encodable(spelled(relation.get("type", "")))})
    nodes = []
    for place, (utterance, incoming) in enumerate(zip(utterances, relations, strict=True)):
        text, speaker = _content(utterance)
        nodes.append(
            Node(
                text=text,
                parents=tuple(sorted({int(relation["parent"]) for relation in incoming})),
                id=str(place),
                author=speaker,
                label=incoming or None,
            )
        )
    return Tree(tuple(nodes), id=name, meta=meta)


def _without_repeated(tree: Tree, seen: set[Any], where: str, counts: ReadCounts) -> Tree:
    """The tree without labels of relations that are in `seen`, to which those of the tree are added.

    Dialogues that share utterances are in one group, so that equal utterances are the same.
    """
    nodes = []
    for node in tree.nodes:
        labels = []
        for relation in node.label or ():
            source = tree.nodes[int(relation["parent"])]
            key = source.text, source.author, node.text, node.author
            if key in seen:
                counts.repair("repeated_relation", f"{where}: {relation['parent']} to {node.id}")
            else:
                seen.add(key)
                labels.append(relation)
        nodes.append(replace(node, label=labels or None))
    return replace(tree, nodes=tuple(nodes))


def _name(record: dict[str, Any], number: int) -> str:
    return encodable(spelled(record.get("id", number)))


def _content(utterance: Any) -> tuple[str, str | None]:
    if not isinstance(utterance, dict):
        return "", None
    text, speaker = utterance.get("text"), utterance.get("speaker")
    return encodable(text) if isinstance(text, str) else "", None if speaker is None else encodable(spelled(speaker))


def _groups(dialogues: list[list[Any]]) -> list[int]:
    """For each dialogue, the first dialogue that is connected with it through shared utterances."""
    first = list(range(len(dialogues)))

    def leader(dialogue: int) -> int:
        while first[dialogue] != dialogue:
            first[dialogue] = dialogue = first[first[dialogue]]
        return dialogue

    sharing: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    for number, utterances in enumerate(dialogues):
        for utterance in utterances:
            sharing[_content(utterance)].append(number)
    for numbers in sharing.values():
        for number in numbers[1:]:
            one, other = leader(numbers[0]), leader(number)
            first[max(one, other)] = min(one, other)
    return [leader(number) for number in range(len(dialogues))]
