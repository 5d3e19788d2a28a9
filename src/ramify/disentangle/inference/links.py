"""What a model makes of logs: the links that it finds, conversations, and how good they are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from ramify.dataset.store import Split, Store
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.distillation import beliefs
from ramify.disentangle.inference.comembership import Comemberships
from ramify.disentangle.inference.decode import Decided, Known, Opinion, decide, lead_in
from ramify.disentangle.inference.ensemble import Ensemble, chances, combine
from ramify.errors import RamifyError
from ramify.metrics.conversations import Match, conversations, match
from ramify.readers.annotation import Links
from ramify.tree import Node, Tree

if TYPE_CHECKING:
    from ramify.disentangle.task import ReplyTo

CONVERSATION = "conversation"
"""In a message's label: which conversation it is known to belong to."""


@dataclass(frozen=True)
class Disentangled:
    """A log with what each message answers."""

    tree: Tree
    """The log's messages, each with what it answers, the likeliest first; nothing where it starts a conversation (where it does
    so besides, it has a `self_link`)."""
    probability: Float[NDArray, " message"]
    """Of the first that each message is said to answer, or that it starts a conversation where it answers none."""
    conversation: Ints
    """[message]: its conversation; they are numbered from 0 as they begin."""

    def conversations(self) -> list[Tree]:
        """Each as a tree of its own, opened by the message that starts it, with one parent a message: the first that it
        answers. Nodes say in `label` the probability of that, and as `also` the ids of what else they answer, beside what their
        label said before: fields of its own, or as `label` what was none. What an earlier run said there is replaced."""
        said = (
            replace(node, parents=node.parents and node.parents[:1], label=self._label(node, float(chance)))
            for node, chance in zip(self.tree.nodes, self.probability)
        )
        parts = _parts(Tree(tuple(said), id=self.tree.id), self.conversation)
        return [replace(part, meta={"log": self.tree.id, **self.tree.meta}) for part in parts]

    def _label(self, node: Node, chance: float) -> Any:
        also = [self.tree.nodes[each].id for each in (node.parents or ())[1:]]
        before = node.label if isinstance(node.label, dict) else {} if node.label is None else {"label": node.label}
        before = {name: value for name, value in before.items() if name not in ("probability", "also")}
        return before | {"probability": round(chance, 4)} | ({"also": also} if also else {})

    def links(self) -> Links:
        """(parent, child) of every message, a message that starts a conversation being its own parent."""
        pairs = [
            (parent, child)
            for child, node in enumerate(self.tree.nodes)
            for parent in ((*(node.parents or ()), child) if node.self_link or not node.parents else node.parents)
        ]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _parts(log: Tree, conversation: Ints) -> list[Tree]:
    """The log's conversations, each a tree of its own."""
    members: list[list[int]] = [[] for _ in range(int(conversation.max(initial=-1)) + 1)]
    for message, number in enumerate(conversation.tolist()):
        members[number].append(message)
    trees = []
    for number, own in enumerate(members):
        place = {message: index for index, message in enumerate(own)}
        nodes = (
            replace(node, parents=node.parents and tuple(place[parent] for parent in node.parents))
            for node in (log.nodes[message] for message in own)
        )
        trees.append(Tree(tuple(nodes), id=f"{log.id}/{number}"))
    return trees


def _linked(log: Tree) -> Links:
    """(parent, child) of all messages that answer another one."""
    links = [(parent, child) for child, node in enumerate(log.nodes) for parent in node.parents or ()]
    return np.array(links, dtype=np.int64).reshape(-1, 2)


def known_conversations(log: Tree) -> list[Tree]:
    """The conversations that a log is known to hold, each a log of its own, as if nothing else had been said and nobody had
    noted when: what a channel without cross-talk looks like. Those of one message are left out."""
    number = conversations(_linked(log), np.arange(len(log)))
    untimed = Tree(tuple(replace(node, time=None) for node in log.nodes), id=log.id)
    return [part for part in _parts(untimed, number) if len(part) > 1]


def disentangle(
    tasks: "Sequence[ReplyTo]",
    log: Tree | Sequence[Node],
    *,
    keep_replies: bool = False,
    ensemble: Ensemble = "vote",
    beam: int = 1,
) -> Disentangled:
    """What each message of a log answers, and which conversations they make.

    Several models decide as `ensemble` says; `beam` is for models that read their own decisions (see `decide`). With
    `keep_replies`, a message that says itself what it answers is believed (a node whose `parents` are not None); else nothing
    looks at that.
    """
    if not isinstance(log, Tree):
        log = tuple(log)
        if other := [type(each).__name__ for each in log if not isinstance(each, Node)]:
            raise RamifyError(f"messages are ramify.Node, not {other[0]}: Node(text, author=…, time=…).")
        log = Tree(log)
        # A node says that it answers nothing unless it is told otherwise.
        if keep_replies and len(log) > 1 and not any(node.parents != () or node.self_link for node in log.nodes):
            raise RamifyError(
                "keep_replies believes what messages say they answer, and here all say that they answer nothing. Give nodes "
                "of which nobody knows it parents=None, or a Tree of such as are known to."
            )
    answers, probability = _decided(tasks, log, ensemble, beam)
    if keep_replies:
        for number, node in enumerate(log.nodes):
            if node.parents is not None:
                answers[number] = (*node.parents, number) if node.self_link and node.parents else node.parents
                probability[number] = 1.0
    nodes = (
        replace(node, parents=tuple(above for above in own if above != number), self_link=number in own)
        for number, (node, own) in enumerate(zip(log.nodes, answers, strict=True))
    )
    tree = Tree(tuple(nodes), id=log.id, meta=log.meta)
    # Labels in the order in which conversations begin.
    _, first, place = np.unique(conversations(_linked(tree), np.arange(len(tree))), return_index=True, return_inverse=True)
    return Disentangled(tree, probability, np.argsort(np.argsort(first))[place])


def _decided(
    tasks: "Sequence[ReplyTo]", log: Tree, ensemble: Ensemble, beam: int
) -> tuple[list[tuple[int, ...]], Float[NDArray, " message"]]:
    """What each message answers (`ensembles.Answers`), the likeliest first, and how probable that is."""
    if ensemble == "mean" and len(tasks) > 1:
        if beam > 1:
            raise RamifyError("a beam is for decisions, and an ensemble by the mean makes one of the members' probabilities.")
        if len({(task.config.decide, task.config.threshold) for task in tasks}) > 1:
            raise RamifyError(
                "members of an ensemble by the mean decide in one way: these differ in task.decide or task.threshold."
            )
        believed = beliefs(tasks, lambda: [log], max(task.input.window for task in tasks))
        messages, back = np.arange(len(log)), np.arange(believed.shape[1])
        candidates = messages[:, None] - back
        seen = candidates >= 0
        opinion = Opinion(messages, candidates[seen], seen.sum(axis=1), believed[seen])
        comemberships = Comemberships(np.array([0, len(log)]), believed.shape[1] - 1)
        decided = opinion.choose(tasks[0].config, messages.copy(), comemberships.of)
    else:
        heard = {each: Logs.of([log], each) for each in {task.input for task in tasks}}
        found = [decide(task, heard[task.input].read_with(task.tokenizer), beam=beam) for task in tasks]
        if len(found) > 1:
            assert ensemble != "mean"
            members = [_answers(each)[0] for each in found]
            answers = combine(members, ensemble)
            return answers, chances(members, answers)
        decided = found[0]
    return _answers(decided)


def _answers(decided: Decided) -> tuple[list[tuple[int, ...]], Float[NDArray, " message"]]:
    """What each message answers (`ensembles.Answers`), the likeliest first, and how probable the first of these is."""
    answers: list[tuple[int, ...]]
    answers = [() if above == number else (above,) for number, above in enumerate(decided.answered.tolist())]
    probability = decided.probability.copy()
    several = np.unique(decided.further[:, 0])
    of_several = decided._replace(answered=decided.answered[several], probability=probability[several])
    for message, said in of_several.by_message(several).items():
        answers[message] = tuple(above for above, _ in said)
        probability[message] = next(chance for above, chance in said if above != message)
    return answers, probability


def matched(logs: Logs, names: Sequence[str], links: Int[NDArray, "link 2"]) -> Match:
    """Predicted links (a message and what it answers) beside what is known of the logs, to be scored by
    `metrics.conversations`."""
    gold: dict[str, Links] = {}
    found: dict[str, Links] = {}
    for number, name in enumerate(names):
        first, stop = logs.offsets[number : number + 2].tolist()
        own = logs.links[(logs.links[:, 0] >= first) & (logs.links[:, 0] < stop)] - first
        if len(own):
            gold[name] = own[:, ::-1]
            messages = np.unique(own[:, 0])
            found[name] = (links - first)[np.isin(links[:, 0] - first, messages)][:, ::-1]
    return match(gold, found)


Told = Literal["predicted", "gold", "unread"]
"""What a model was told of what earlier messages answer; `unread` where it reads nothing of that."""

IN_WORDS: dict[Told, str] = {
    "predicted": "the model read its own earlier decisions",
    "gold": "the model was told what earlier messages answer",
    "unread": "the model reads nothing of what earlier messages answer",
}


def told(task: "ReplyTo", history: Known) -> Told:
    return history if task.backbone.reads_structure else "unread"


LinksOrConversations = Literal["links", "conversations"]


@dataclass(frozen=True)
class Measured:
    """Links that a model found beside those that are known, and how it came to them."""

    match: Match
    history: Told
    into_context: float
    """Share of the known messages that look back on messages of which nothing is known."""
    known: LinksOrConversations
    """What the data say. Where it is conversations, each message is taken to answer the one before it there."""
    starts: bool
    """Whether messages that start a conversation are scored, too."""

    @property
    def unknown(self) -> tuple[str, ...]:
        """Scores that would say nothing."""
        return ("link",) if self.known == "conversations" else ()

    @property
    def told(self) -> str:
        """In words, to stand beside the scores."""
        starts = "" if self.starts else "; messages that start a conversation are not scored"
        if self.known == "conversations":
            return f"{IN_WORDS[self.history]}; the data know conversations, and no links{starts}"
        share = f"{self.into_context:.0%} of the scored messages look back on messages of which nobody knows what they answer"
        return f"{IN_WORDS[self.history]}; {share}{starts}"


def measure(
    task: "ReplyTo", store: Store, split: Split, *, starts: bool = True, history: Known = "predicted", beam: int = 1
) -> Measured:
    """The links of every message of a split's logs whose link is known, or in logs of which only conversations are known (in
    `label`), each message taken to follow the one before it in its conversation: that makes the same conversations, and links
    that nobody has noted (see `Measured.unknown`).

    Without `starts`, or if the model finds none, messages that start a conversation are not scored. `history` and `beam`: see
    `decide`. Raises `RamifyError` where nothing is known, and of reply trees (see `measure_replies`).
    """
    if store.holds_reply_trees:
        raise RamifyError(f"{store.path} holds reply trees, no chat logs: score them with `ramify evaluate`.")
    trees = store.split(split)
    own = list(store.trees(trees))
    known: LinksOrConversations = "links" if any(map(_says_links, own)) else "conversations"
    logs = Logs.of(map(_as_known, own), task.input).read_with(task.tokenizer)
    finds_starts = task.config.starts and task.config.objective != "ranking"
    if not (starts and finds_starts):
        logs = logs.without_starts()
    if not len(logs.links):
        held = ", ".join(f"{name} {len(store.split(name)):,}" for name in ("train", "dev", "test"))
        raise RamifyError(
            f"{store.path} ({split}): of no message anybody says which one it answers: nothing to score. It has logs in "
            f"{held}; --split says which."
        )
    decided = decide(task, logs, history=history, beam=beam, start=lead_in(logs))
    into_context = _reach_into_context(logs, np.flatnonzero(logs.annotated)).mean()
    found = matched(logs, store.tree_ids(trees), decided.links)
    return Measured(found, told(task, history), float(into_context), known, starts and finds_starts)


def _reach_into_context(logs: Logs, messages: Ints) -> NDArray[np.bool_]:
    """Which messages may answer one of which nothing is known."""
    unknown = np.concatenate([[0], np.cumsum(~logs.annotated)])
    first = np.maximum(messages - logs.history.window, logs.offsets[logs.log_of(messages)])
    return unknown[messages] > unknown[first]


def _says_links(log: Tree) -> bool:
    return any(node.parents is not None for node in log.nodes)


def _as_known(log: Tree) -> Tree:
    if _says_links(log):
        return log
    latest: dict[Any, int] = {}
    nodes = []
    for number, node in enumerate(log.nodes):
        conversation = node.label.get(CONVERSATION) if isinstance(node.label, dict) else None
        if conversation is None:
            nodes.append(node)
            continue
        nodes.append(replace(node, parents=(latest[conversation],) if conversation in latest else ()))
        latest[conversation] = number
    return Tree(tuple(nodes), id=log.id, meta=log.meta)
