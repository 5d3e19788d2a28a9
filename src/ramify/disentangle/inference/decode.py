"""What a model thinks of who answers whom, and what it decides."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray

from ramify.batching.batch import join
from ramify.batching.samplers import TokenBudget
from ramify.batching.views.base import Example
from ramify.disentangle.batch import LinkBatch, LinkCollator, Vectors
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.structure import Structure
from ramify.disentangle.features.conversation import Course
from ramify.disentangle.inference.comembership import Comembership, Comemberships
from ramify.errors import RamifyError
from ramify.nn.ragged import Rows, length_key, runs

if TYPE_CHECKING:
    from ramify.disentangle.task import ReplyTo, ReplyToConfig

KEYS = 16_384
"""Pairs scored at once."""
FIRST_KEYS = 2 * KEYS
"""Pairs looked at at once where a first look leaves most of them unread."""
TOKENS = 16_384
"""Tokens of messages encoded at once."""
_BLOCK = 64

Known = Literal["predicted", "gold"]
"""What a model that reads what earlier messages answer is told of it: what it decided itself, or the truth."""


@dataclass(frozen=True)
class Opinion:
    """What a model thinks of the candidates of some messages: the message itself first, then nearest first."""

    messages: Ints
    candidates: Ints
    lengths: Ints
    """How the flat candidates fall to the messages."""
    probabilities: Float[NDArray, " key"]

    @classmethod
    def joined(cls, parts: "list[Opinion]") -> "Opinion":
        return cls(
            join([part.messages for part in parts]),
            join([part.candidates for part in parts]),
            join([part.lengths for part in parts]),
            np.concatenate([np.zeros(0, dtype=np.float32), *(part.probabilities for part in parts)]),
        )

    def by_distance(self, window: int) -> Float[NDArray, "message place"]:
        """How likely each message answers the one so many places back (0: it starts a conversation), as far as the window."""
        table = np.zeros((len(self.messages), window + 1), dtype=np.float32)
        row = np.repeat(np.arange(len(self.messages)), self.lengths)
        back = self.messages[row] - self.candidates
        near = back <= window
        table[row[near], back[near]] = self.probabilities[near]
        return table

    def likeliest(self) -> tuple[Ints, Float[NDArray, " message"]]:
        """The one message that each answers, of equals the nearest; and its probability."""
        starts = np.cumsum(self.lengths) - self.lengths
        row = np.repeat(np.arange(len(self.lengths)), self.lengths)
        best = np.maximum.reduceat(self.probabilities, starts) if len(starts) else self.probabilities
        is_best = np.flatnonzero(self.probabilities == best[row])
        first = is_best[np.unique(row[is_best], return_index=True)[1]]
        return self.candidates[first], best

    def likeliest_by_conversation(self, conversation: Ints) -> tuple[Ints, Float[NDArray, " message"]]:
        """The likeliest message of that conversation which is likeliest as a whole, and its probability.

        `conversation` numbers the conversations of all messages so far, and any other message as one of its own; as messages
        are decided, in order, it is brought up to date.
        """
        answered, best = self.likeliest()
        ends = np.cumsum(self.lengths)
        for row, (message, stop) in enumerate(zip(self.messages.tolist(), ends.tolist())):
            # What is likelier than all else together is so in its conversation, too.
            if best[row] <= 0.5:
                own = slice(stop - int(self.lengths[row]), stop)
                candidates, shares = self.candidates[own], self.probabilities[own].tolist()
                numbers = conversation[candidates].tolist()
                total = dict.fromkeys(sorted(numbers), 0.0)
                for number, share in zip(numbers, shares):
                    total[number] += share
                chosen = max(total, key=total.__getitem__)
                inside = [place for place, number in enumerate(numbers) if number == chosen]
                place = max(inside, key=shares.__getitem__)
                answered[row], best[row] = candidates[place], shares[place]
            conversation[message] = conversation[answered[row]]
        return answered, best

    def likeliest_by_comembership(
        self, conversation: Ints, comembership: Callable[[int], Comembership]
    ) -> tuple[Ints, Float[NDArray, " message"]]:
        """The likeliest message of the conversation of that earlier message with which it is likeliest to share one, and its
        probability; the message itself where it shares one with none of them more likely than not.

        `conversation` as above; `comembership` that of each message's log, which has heard of all messages before it.
        """
        answered, best = self.likeliest()
        starts = np.cumsum(self.lengths) - self.lengths
        back = np.repeat(self.messages, self.lengths) - self.candidates
        for row, (message, start, length) in enumerate(zip(self.messages.tolist(), starts.tolist(), self.lengths.tolist())):
            own = slice(start, start + length)
            together = comembership(message).hear(back[own], self.probabilities[own])
            nearest = int(together.argmax())
            if together[nearest] < 0.5:
                answered[row], best[row] = message, self.probabilities[start]
                continue
            companion = message - 1 - nearest
            joined = conversation[companion]
            if conversation[answered[row]] != joined:
                inside = start + np.flatnonzero(conversation[self.candidates[own]] == joined)
                if len(inside):
                    place = inside[self.probabilities[inside].argmax()]
                    answered[row], best[row] = self.candidates[place], self.probabilities[place]
                else:
                    # A first look has left out all of that conversation.
                    answered[row], best[row] = companion, 0.0
            conversation[message] = joined
        return answered, best

    def choose(self, config: "ReplyToConfig", conversation: Ints, comembership: Callable[[int], Comembership]) -> "Decided":
        """What each of the messages answers, as `decide` and `threshold` have it; the others as above."""
        by_conversation = config.decide != "link"
        if config.decide == "link":
            answered, probability = self.likeliest()
        elif config.decide == "conversation":
            answered, probability = self.likeliest_by_conversation(conversation)
        else:
            answered, probability = self.likeliest_by_comembership(conversation, comembership)
        if not config.threshold:
            return Decided(answered, probability)
        of = np.repeat(self.messages, self.lengths)
        further = (self.probabilities >= config.threshold) & (self.candidates != np.repeat(answered, self.lengths))
        if by_conversation:
            further &= (conversation[self.candidates] == conversation[of]) & (self.candidates != of)
        links = np.stack([of, self.candidates], axis=1)[further]
        return Decided(answered, probability, links, self.probabilities[further])


class Decided(NamedTuple):
    """Of some messages, in their order."""

    answered: Ints
    """Which one it answers; itself, where it starts a conversation, and where nothing was to be decided."""
    probability: Float[NDArray, " message"]
    further: Int[NDArray, "link 2"] = np.zeros((0, 2), dtype=np.int64)
    """Pairs of a message and another that it answers, too (`task.threshold`); or itself, where it starts a conversation
    besides."""
    chances: Float[NDArray, " link"] = np.zeros(0, dtype=np.float32)
    """How probable each of those is."""

    def by_message(self, messages: Ints) -> dict[int, list[tuple[int, float]]]:
        """All that each of them answers, with how probable that is, the likeliest first."""
        found = {
            message: [(above, chance)]
            for message, above, chance in zip(messages.tolist(), self.answered.tolist(), self.probability.tolist(), strict=True)
        }
        for (message, above), chance in zip(self.further.tolist(), self.chances.tolist(), strict=True):
            found[message].append((above, chance))
        for message in dict.fromkeys(self.further[:, 0].tolist()):
            found[message].sort(key=lambda each: -each[1])
        return found

    @property
    def links(self) -> Int[NDArray, "link 2"]:
        """Where it is of all messages of some logs: pairs of a message and one that it answers, itself where it starts a
        conversation."""
        return np.concatenate([np.stack([np.arange(len(self.answered)), self.answered], axis=1), self.further])


def opinions(
    task: "ReplyTo",
    logs: Logs,
    *,
    history: Known = "predicted",
    start: Ints | None = None,
    vectors: Vectors | None = None,
    course: Course | None = None,
    live: bool = False,
) -> Iterator[Opinion]:
    """On all messages of the logs (of each from the message `start` on), some at a time. `vectors` of all that are read may be
    given; and for a model that takes a second look, what became of those before `start` at first sight, of which it is told
    more. `live`: nobody knows what is said after the last one, so none of them is looked at with hindsight.

    They come in the order of the logs, unless the model reads its own decisions: then several logs are decided side by side,
    message by message.
    """
    start = logs.offsets[:-1] if start is None else start
    first = _at_first_sight(task, logs, history, start, vectors)
    if task.second is None or (task.second.hindsight and (live or task.config.as_live)):
        yield from first
    else:
        yield from task.second.again(first, course or Course.of(logs))


def _at_first_sight(task: "ReplyTo", logs: Logs, history: Known, start: Ints, vectors: Vectors | None) -> Iterator[Opinion]:
    with task.evaluating(), torch.no_grad():
        collate = collator(task, logs, vectors or keep_vectors(task, logs, heard_from(logs, start)))
        if task.backbone.reads_structure and history == "predicted":
            yield from _side_by_side(task, collate, start)
            return
        if task.backbone.reads_structure:
            collate = replace(collate, structure=Structure.known(logs))
        for batch in batches(task, collate, start):
            yield believed(task, batch)


def batches(task: "ReplyTo", collate: LinkCollator, start: Ints, shuffle_by: int | None = None) -> Iterator[LinkBatch]:
    """What a model that reads no structure is asked of the messages of each log from `start` on, in their order, or drawn."""
    view = Blocks(collate.logs, _from(collate.logs, start), block=_BLOCK)
    keys = KEYS if task.first is None else FIRST_KEYS
    steps = TokenBudget(view.costs, keys, seed=shuffle_by or 0, shuffle=shuffle_by is not None)
    for numbers in steps.steps(0):
        yield collate([view.example(int(number)) for number in numbers]).to(task.device)


def decide(task: "ReplyTo", logs: Logs, *, history: Known = "predicted", beam: int = 1, start: Ints | None = None) -> Decided:
    """What every message answers, from `start` on.

    With a `beam`, the likeliest of so many structures of each log, not the likeliest link of one message after the other.
    Raises `RamifyError` where the model reads no structure (then the likeliest links make the likeliest structure), or is told
    it.
    """
    if beam > 1 and history == "gold":
        raise RamifyError("a beam searches among the model's own decisions: it goes with history = predicted, not gold.")
    if beam > 1:
        answered, probability = np.arange(len(logs)), np.zeros(len(logs), dtype=np.float32)
        _search(task, logs, beam, start, answered, probability)
        return Decided(answered, probability)
    return settle(task.config, logs, opinions(task, logs, history=history, start=start))


def settle(config: "ReplyToConfig", logs: Logs, parts: Iterable[Opinion]) -> Decided:
    """What every message answers, by what is believed of those in `parts`, which come in order; any other answers itself."""
    answered, probability = np.arange(len(logs)), np.zeros(len(logs), dtype=np.float32)
    conversation, also = np.arange(len(logs)), [Decided(answered[:0], probability[:0])]
    comemberships = Comemberships(logs.offsets, logs.history.window)
    for opinion in parts:
        chosen = opinion.choose(config, conversation, comemberships.of)
        answered[opinion.messages], probability[opinion.messages] = chosen.answered, chosen.probability
        also.append(chosen)
    further, chances = (np.concatenate([getattr(each, name) for each in also]) for name in ("further", "chances"))
    return Decided(answered, probability, further, chances)


def keep_vectors(task: "ReplyTo", logs: Logs, messages: Ints) -> Vectors | None:
    """The vectors of some messages, each encoded once, without dropout; None where the model makes none."""
    if not task.backbone.makes_vectors:
        return None
    lengths = logs.sizes(messages)
    order = np.argsort(length_key(lengths), kind="stable")
    messages, lengths = messages[order], lengths[order]
    parts = []
    with task.evaluating(), torch.no_grad():
        for first, stop in runs(lengths, TOKENS):
            ids, sizes = logs.words(messages[first:stop])
            found = task.backbone.encode(torch.from_numpy(ids).to(task.device), Rows.build(sizes).to(task.device))
            parts.append(found.float().cpu())
    row = np.full(len(logs), -1, dtype=np.int64)
    row[messages] = np.arange(len(messages))
    return Vectors(torch.cat(parts), row) if parts else None


def lead_in(logs: Logs) -> Ints:
    """[log]: where deciding must begin, so that what is decided on the known messages does not hang on where: two windows
    before the first of them (what stands there was said, but nobody noted what it answers)."""
    return np.maximum(logs.offsets[:-1], logs.first_known - 2 * logs.history.window)


def _from(logs: Logs, start: Ints) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *map(np.arange, start, logs.offsets[1:])])


def heard_from(logs: Logs, start: Ints) -> Ints:
    """All that is read to decide from the message `start` of each log on."""
    return with_history(logs, _from(logs, start))


def with_history(logs: Logs, messages: Ints) -> Ints:
    """Messages and all that they may answer."""
    reach = np.maximum(messages - logs.history.window, logs.offsets[logs.log_of(messages)])
    depth = np.zeros(len(logs) + 1, dtype=np.int64)
    np.add.at(depth, reach, 1)
    np.add.at(depth, messages + 1, -1)
    return np.flatnonzero(np.cumsum(depth[:-1]) > 0)


def collator(task: "ReplyTo", logs: Logs, vectors: Vectors | None) -> LinkCollator:
    """Lays out what the model reads; without what is said to answer what."""
    return LinkCollator(logs, vectors, surroundings=task.backbone.reads_surroundings)


def ask(task: "ReplyTo", collate: LinkCollator, examples: Sequence[Example]) -> Opinion:
    """What the model thinks of the targets of some examples."""
    return believed(task, collate(examples).to(task.device))


def believed(task: "ReplyTo", batch: LinkBatch) -> Opinion:
    scores = task.probabilities(task.scores(batch), batch)
    return Opinion(batch.source, batch.key_source, batch.candidates.host_lengths, scores.float().cpu().numpy())


def _side_by_side(task: "ReplyTo", collate: LinkCollator, start: Ints) -> Iterator[Opinion]:
    """A message of each log at a time, given what was decided on those before it."""
    logs, structure = collate.logs, Structure()
    collate = replace(collate, structure=structure)
    view = Blocks(logs, np.arange(len(logs)), block=1)
    left, conversation = logs.offsets[1:] - start, np.arange(len(logs))
    comemberships = Comemberships(logs.offsets, logs.history.window)
    for group in np.array_split(np.argsort(-left, kind="stable"), -(-len(left) * (logs.history.window + 1) // KEYS) or 1):
        for step in range(int(left[group].max(initial=0))):
            messages = start[group[left[group] > step]] + step
            opinion = ask(task, collate, [view.example(int(message)) for message in messages])
            chosen = opinion.choose(task.config, conversation, comemberships.of)
            for message, answered in zip(opinion.messages.tolist(), chosen.answered.tolist()):
                structure.link(message, answered)
            for message, answered in chosen.further.tolist():
                structure.link(message, answered)
            yield opinion


class _Step(NamedTuple):
    """What a message answers, and what was decided before it."""

    before: "_Step | None"
    answered: int
    probability: float


class _Beam(NamedTuple):
    """A structure of the first messages of a log, as far as a window looks back on it."""

    total: float
    structure: Structure
    last: _Step | None = None

    def then(self, total: float, message: int, answered: int, probability: float, window: int) -> "_Beam":
        structure = self.structure.copy(since=message - window)
        structure.link(message, answered)
        return _Beam(total, structure, _Step(self.last, answered, probability))

    def decided(self) -> tuple[list[int], list[float]]:
        """What each message answers, and how probable that is."""
        step, answered, probability = self.last, [], []
        while step is not None:
            answered.append(step.answered)
            probability.append(step.probability)
            step = step.before
        return answered[::-1], probability[::-1]


def _search(
    task: "ReplyTo", logs: Logs, width: int, start: Ints | None, answered: Ints, probability: Float[NDArray, " message"]
) -> None:
    if not task.backbone.reads_structure or task.config.objective == "binary" or task.config.threshold:
        raise RamifyError(
            "a beam is for models that read what earlier messages answer, and decide on one answer a message: of any other the "
            "likeliest links make the likeliest structure already."
        )
    if task.config.decide != "link":
        raise RamifyError(
            f"a beam looks for the likeliest links together: it goes with task.decide=link, not {task.config.decide}."
        )
    first = logs.offsets[:-1] if start is None else start
    view = Blocks(logs, np.arange(len(logs)), block=1)
    with task.evaluating(), torch.no_grad():
        collate = collator(task, logs, keep_vectors(task, logs, heard_from(logs, first)))
        for own, end in zip(first.tolist(), logs.offsets[1:].tolist()):
            beams = [_Beam(0.0, Structure())]
            for message in range(own, end):
                examples = [view.example(message)] * len(beams)
                opinion = ask(task, replace(collate, structure=[beam.structure for beam in beams]), examples)
                shares = opinion.probabilities.reshape(len(beams), -1)
                candidates = opinion.candidates[: shares.shape[1]]
                following = [
                    (
                        beam.total + math.log(max(own_shares[place], 1e-30)),
                        beam,
                        int(candidates[place]),
                        float(own_shares[place]),
                    )
                    for beam, own_shares in zip(beams, shares)
                    for place in np.argsort(-own_shares, kind="stable")[:width].tolist()
                ]
                following.sort(key=lambda one: -one[0])
                beams = [
                    beam.then(total, message, above, share, logs.history.window)
                    for total, beam, above, share in following[:width]
                ]
            answered[own:end], probability[own:end] = beams[0].decided()
