"""Answers of pipelines: frozen dataclasses, which know their form in JSON. This module imports neither torch nor NumPy."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from ramify.tree import Tree


class Answer(ABC):
    """The answer to one question."""

    notes: tuple[str, ...]
    """Reservations about the answer, for people. They are no part of the JSON."""

    @abstractmethod
    def to_json(self) -> Any:
        """The answer as JSON takes it."""


@dataclass(frozen=True)
class Record(Answer):
    """An answer whose JSON has a key for each field, in their order. Numbers of arrays are rounded to six decimal places."""

    notes: tuple[str, ...] = field(default=(), kw_only=True, compare=False)
    optional: ClassVar[tuple[str, ...]] = ()
    """Fields that the JSON lacks where they are None or empty."""
    written: ClassVar[str] = ""
    """The field with a text that the model wrote; empty if it wrote none."""

    @property
    def empty(self) -> bool:
        """Whether the text that the model wrote is blank. The JSON then has `"empty": true`."""
        return self.written != "" and not getattr(self, self.written).strip()

    def to_json(self) -> dict[str, Any]:
        values = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "notes"}
        shown = {
            name: _plain(value) for name, value in values.items() if name not in self.optional or value not in (None, (), {})
        }
        return shown | ({"empty": True} if self.empty else {})


def nothing_written(texts: Sequence[str]) -> tuple[str, ...]:
    """A note about those of the texts that a model wrote which are blank, if there are any."""
    blank = [number for number, text in enumerate(texts, 1) if not text.strip()]
    if not blank:
        return ()
    if len(texts) == 1:
        return ("the model wrote nothing: the text is empty.",)
    return (f"the model wrote nothing for {len(blank):,} of {len(texts):,} texts; the first is text {blank[0]:,}.",)


def _plain(value: Any) -> Any:
    """A value as JSON takes it. Answers hold answers, tuples, arrays and plain values."""
    import numpy as np

    if isinstance(value, Answer):
        return value.to_json()
    if isinstance(value, np.ndarray):
        return value.astype(float).round(6).tolist()
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


# --- fill_mask ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenProbability(Record):
    token: str
    """A piece of the vocabulary, or the candidate as it was given."""
    probability: float


@dataclass(frozen=True)
class FilledMask(Record):
    position: int
    """The mask's place among the pieces of its text, from 0."""
    tokens: tuple[TokenProbability, ...]
    """Likeliest first."""


@dataclass(frozen=True)
class Filling(Record):
    """One filling of all masks together."""

    tokens: tuple[str, ...]
    text: str
    probability: float


@dataclass(frozen=True)
class FilledMasks(Record):
    """The answer of `fill_mask`."""

    optional = ("joint",)
    node: str
    context: str
    ancestors: tuple[str, ...]
    """The ids of the ancestors in the context, oldest first."""
    masks: tuple[FilledMask, ...]
    joint: tuple[Filling, ...] = ()
    """The likeliest fillings of all masks together; empty if nobody asked for them."""


# --- score ----------------------------------------------------------------------------------------------------------------


class Score(Answer, ABC):
    """The answer of `score`: a `PseudoLikelihood` or a `Likelihood`."""

    @property
    @abstractmethod
    def value(self) -> float:
        """The logarithm in nats. A greater one is better."""

    @property
    @abstractmethod
    def num_tokens(self) -> int: ...


@dataclass(frozen=True)
class TokenScore(Record):
    token: str
    log_probability: float


@dataclass(frozen=True)
class PseudoLikelihood(Record, Score):
    """Σ log p(piece | all other pieces, context) in nats (Salazar et al. 2020)."""

    node: str
    context: str
    ancestors: tuple[str, ...]
    pseudo_log_likelihood: float
    tokens: tuple[TokenScore, ...]
    unknown_tokens: int
    """The number of tokens that the tokenizer cannot spell."""

    @property
    def value(self) -> float:
        return self.pseudo_log_likelihood

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class Likelihood(Record, Score):
    """Σ log p(token | tokens before it in the order) in nats."""

    optional = ("orders", "mean", "log_mean_exp")
    log_likelihood: float
    """If there are several orders: the log-likelihood under the first."""
    tokens: int
    bytes: int
    order: str
    longer_than_row: bool
    """Whether the text has more tokens than the rows of training."""
    unknown_tokens: int
    """The number of tokens that the tokenizer cannot spell. All texts that differ in these alone have the same likelihood."""
    orders: tuple[float, ...] = ()
    """The log-likelihood under each random order."""
    mean: float | None = None
    """Their mean: the negative objective, which is a lower bound."""
    log_mean_exp: float | None = None
    """The logarithm of the mean likelihood."""

    @property
    def value(self) -> float:
        return self.log_likelihood

    @property
    def num_tokens(self) -> int:
        return self.tokens


# --- generate -------------------------------------------------------------------------------------------------------------


class Generation(Answer, ABC):
    """The answer of `generate`: the continuation of a prompt (`Generated`), or documents (`GeneratedTexts`)."""


@dataclass(frozen=True)
class GeneratedHypothesis(Record):
    """A continuation that beam search has found."""

    written = "text"
    text: str
    tokens: int
    log_probability: float
    """In nats, that of the stop token included."""
    score: float
    """log p / ((5 + length) / 6)^α, by which hypotheses are ordered."""


@dataclass(frozen=True)
class Generated(Record, Generation):
    """The continuation of a prompt."""

    optional = ("hypotheses",)
    written = "text"
    prompt: str
    text: str
    """The continuation alone."""
    tokens: int
    """The number of tokens of the continuation."""
    unknown_tokens: int
    """The number of tokens of the prompt that the tokenizer cannot spell."""
    hypotheses: tuple[GeneratedHypothesis, ...] = ()
    """The best of a beam search, the likeliest first; empty if tokens were sampled."""


# --- translate ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TranslationHypothesis(Record):
    written = "text"
    text: str
    score: float
    """log p / ((5 + length) / 6)^α, by which translations are ordered."""


@dataclass(frozen=True)
class Translation(Record):
    """The answer of `translate`."""

    source: str
    translations: tuple[TranslationHypothesis, ...]
    """Best first; none if the source has no tokens."""


# --- attention ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class HeadWeights(Record):
    layer: int
    head: int
    """Layers and heads are counted from 1."""
    weights: Any
    """An array, [query, key]. The weights of a query add up to 1, or to 0 if it sees no key."""


@dataclass(frozen=True)
class StackWeights(Record):
    """The weights of one kind of attention, in all layers of a stack."""

    stack: str
    """encoder or decoder; output: the output attention of a TreeMLM; streams: those of an XLNet."""
    kind: str
    """self, cross (to ancestors, or to the source of a text), content or query."""
    node: str
    """The node whose text is read, itself or as a source."""
    queries: tuple[str, ...]
    """Tokens that are read. Those that attend to a source are the predicted ones instead."""
    keys: tuple[str, ...]
    """Tokens, or the ids of ancestors."""
    heads: tuple[HeadWeights, ...]


class Attention(Answer, ABC):
    """The answer of `attention`: `NodeAttention` or `StreamAttention`."""

    node: str
    context: str
    ancestors: tuple[str, ...]
    ranks: tuple[int, ...]
    """The place of each token in a factorization order; empty without one."""
    attention: tuple[StackWeights, ...]
    target: str | None = None
    """The text that is predicted from that of the node; None if the model reads no source."""


@dataclass(frozen=True)
class NodeAttention(Record, Attention):
    """The weights of a text that is read in no factorization order, and of its target if there is one."""

    optional = ("ranks", "target")
    node: str
    context: str
    ancestors: tuple[str, ...]
    attention: tuple[StackWeights, ...]
    ranks: tuple[int, ...] = ()
    target: str | None = None


@dataclass(frozen=True)
class StreamAttention(Record, Attention):
    """The weights of a content stream and of a query stream."""

    optional = ("ranks",)
    node: str
    context: str
    ancestors: tuple[str, ...]
    order: Literal["forward", "backward", "random"] | None
    """None: each token is predicted from all others."""
    ranks: tuple[int, ...]
    attention: tuple[StackWeights, ...]


# --- questions ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AnswerSpan(Record):
    """A span of a passage, or that the passage holds no answer."""

    text: str
    """The characters of the passage from `start` to `end`; empty if there is no answer."""
    start: int
    end: int
    score: float
    """Its share of all spans that were compared, and of no answer."""
    no_answer: bool


@dataclass(frozen=True)
class SpanAnswer(Answer):
    """The answer of `answer`: spans of the passage, best first. Its JSON is the list of the spans."""

    question: str
    spans: tuple[AnswerSpan, ...]
    notes: tuple[str, ...] = field(default=(), kw_only=True, compare=False)

    @property
    def best(self) -> AnswerSpan:
        return self.spans[0]

    def to_json(self) -> list[Any]:
        return [span.to_json() for span in self.spans]


# --- documents ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReconstructedNode(Record):
    written = "reconstruction"
    id: str
    text: str
    reconstruction: str
    token_accuracy: float | None
    """The number of tokens that stand at their place, by that of true or predicted tokens, whichever is greater; None if there
    is none of either."""
    predicted_length: int
    """The number of decoded tokens."""
    complete: bool
    """False if only the beginning was decoded."""


@dataclass(frozen=True)
class Reconstruction(Record):
    """The answer of `reconstruct`: the nodes of a level, in the order of the tree."""

    level: str
    nodes: tuple[ReconstructedNode, ...]
    tokens: int
    """The number of tokens of the document."""
    unknown_tokens: int
    """The number of those that the tokenizer cannot spell."""
    children_left_out: int
    """The number of children that rows lack (`input.overflow=truncate`)."""


@dataclass(frozen=True)
class ChildCoherence(Record):
    optional = ("token",)
    id: str | None
    """None for tokens, and for a child that fills a missing level."""
    token: str | None
    """The spelling of a token; None for nodes."""
    score: float | None
    """None if no row holds the child."""


@dataclass(frozen=True)
class NodeCoherence(Record):
    id: str
    level: str
    score: float | None
    """From 0 to 1; None for a node without children."""
    children: tuple[ChildCoherence, ...] | None
    """None if the checkers judge whole nodes only (`task.marks=none`)."""


@dataclass(frozen=True)
class Coherence(Record):
    """The answer of `coherence`: nodes in the order of the tree."""

    marks: str
    nodes: tuple[NodeCoherence, ...]
    tokens: int
    unknown_tokens: int
    children_left_out: int
    """These three are as in `Reconstruction`."""


@dataclass(frozen=True)
class CopyeditedVersion:
    """A document before or after copyediting."""

    document: "Tree"
    text: str
    nodes: tuple[NodeCoherence, ...]
    """The coherence of those nodes whose children were open to edits, in the order of the tree."""
    coherence: float | None
    """The mean over those of them that have several children; None if there is none."""
    perplexity: float | None
    """The exponential of the mean negative log-likelihood of its tokens under another model; None without one."""


@dataclass(frozen=True)
class Copyedited(Answer):
    """The answer of `copyedit`."""

    before: CopyeditedVersion
    after: CopyeditedVersion
    change_rate: float
    """The edit distance of the tokens, divided by the greater number of tokens."""
    tokens: int
    unknown_tokens: int
    children_left_out: int
    """These three are as in `Reconstruction`, before copyediting."""
    notes: tuple[str, ...] = field(default=(), kw_only=True, compare=False)

    @property
    def empty(self) -> bool:
        """As in `Record`."""
        return not self.after.text.strip()

    def to_json(self) -> dict[str, Any]:
        versions = {"before": self.before, "after": self.after}
        return {
            **{name: version.text for name, version in versions.items()},
            **{f"coherence_{name}": version.coherence for name, version in versions.items()},
            **{f"perplexity_{name}": version.perplexity for name, version in versions.items()},
            "change_rate": self.change_rate,
        } | ({"empty": True} if self.empty else {})


@dataclass(frozen=True)
class GeneratedVersion:
    """A generated document before or after copyediting."""

    document: "Tree"
    nodes: tuple[NodeCoherence, ...]
    """The coherence of its nodes above the lowest level, in the order of the tree."""
    neighbours: "dict[str, Neighbour]"
    """The nearest training node of each of its nodes, by the node's id."""


@dataclass(frozen=True)
class GeneratedText(Record):
    """A node of a level that was generated from noise."""

    written = "text"
    text: str
    coherence: float | None
    """The mean over its nodes with several children; None if there is none."""
    nearest_training_id: str
    """The training node of its level with the greatest cosine with the text's vector: the id of the tree, and its own."""
    nearest_text: str
    versions: "tuple[GeneratedVersion, ...]" = field(default=(), kw_only=True, compare=False, repr=False)
    """Before copyediting (unless there was none), and as it is; empty unless asked for. They are no part of the JSON."""

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in super().to_json().items() if name != "versions"}


@dataclass(frozen=True)
class GeneratedTexts(Generation):
    """Documents that were generated from noise, in the order of their draws. The JSON is the list of them."""

    level: str
    texts: tuple[GeneratedText, ...]
    notes: tuple[str, ...] = field(default=(), kw_only=True, compare=False)

    def to_json(self) -> list[Any]:
        return [text.to_json() for text in self.texts]


@dataclass(frozen=True)
class Neighbour(Record):
    optional = ("author",)
    tree: str
    id: str
    score: float
    """The cosine of the vectors."""
    text: str
    author: str | None = None


@dataclass(frozen=True)
class Nearest(Record):
    """The answer of `nearest`: comments, or nodes of a level, the nearest first."""

    optional = ("level",)
    level: str | None
    """None for comments."""
    nearest: tuple[Neighbour, ...]


# --- chat logs ------------------------------------------------------------------------------------------------------------


class Conversations(Answer, ABC):
    """The answer of `disentangle`: the links and conversations of a log."""

    notes = ()


@dataclass(frozen=True)
class LinkPrediction(Record):
    """An answer of `follow`: the predicted links of a message of a live channel."""

    number: int
    """The message's place in the channel, from 0."""
    parent: int
    """The place of its likeliest parent; its own where it starts a conversation."""
    probability: float
    conversation: int
    """Conversations are numbered from 0 as they start."""
    also: tuple[int, ...] = ()
    """Further parents: those within its conversation (`decoding.threshold`), or all others that the channel records."""
    recorded: bool = False
    """Whether the channel records the links, instead of the model predicting them."""


# --- predict --------------------------------------------------------------------------------------------------------------


class Prediction(Answer, ABC):
    """The answer of `predict` about one text: its label, or its tags."""

    id: str
    """The id of the text, or of its row."""
    gold: Any
    """The label that the data have at the text; None: they have none."""

    @abstractmethod
    def columns(self) -> dict[str, Any]:
        """The columns of a table of answers: `predicted`, and others whose names say what they are."""

    @abstractmethod
    def line(self) -> str:
        """The answer as a line for people."""


@dataclass(frozen=True)
class Choice(Record, Prediction):
    """The likeliest choice of a question."""

    optional = ("gold",)
    id: str
    label: str
    """The text of the choice. A text that stands several times has its number behind it."""
    probabilities: dict[str, float]
    """The probability of each choice."""
    gold: Any = field(default=None, kw_only=True)

    def columns(self) -> dict[str, Any]:
        probabilities = [*self.probabilities.values()]
        return {"predicted": self.label, "probability": self.probabilities[self.label], "probabilities": probabilities}

    def line(self) -> str:
        return f"{self.label} ({self.probabilities[self.label]:.1%})"


@dataclass(frozen=True)
class TextLabel(Record, Prediction):
    """The label of a text: a class, the classes that are likelier than not, or a number."""

    optional = ("probabilities", "gold")
    id: str
    label: str | float | tuple[str, ...]
    probabilities: dict[str, float] = field(default_factory=dict)
    """The probability of each class, after the fitted temperature; a number has none."""
    gold: Any = field(default=None, kw_only=True)

    def columns(self) -> dict[str, Any]:
        shares = {f"probability_{name}": share for name, share in self.probabilities.items()}
        return {"predicted": list(self.label) if isinstance(self.label, tuple) else self.label, **shares}

    def line(self) -> str:
        if isinstance(self.label, int | float):
            return f"{self.label:.4g}"
        label = self.label if isinstance(self.label, str) else ", ".join(self.label) or "no class"
        shares = sorted(self.probabilities.items(), key=lambda item: -item[1])
        return f"{label} ({', '.join(f'{name} {share:.1%}' for name, share in shares)})"


@dataclass(frozen=True)
class TaggedText(Record):
    """A word or a span of a text, with its tag."""

    text: str
    start: int
    """Where it begins in the text, in characters; `end` is exclusive."""
    end: int
    tag: str
    probability: float
    """The probability of this tag or, of a span, that just its words form a span of this kind."""


@dataclass(frozen=True)
class TextSpans(Record, Prediction):
    """The tagged spans of a text. Of a table of tokens, the tag of each token, too."""

    optional = ("tokens", "gold")
    id: str
    spans: tuple[TaggedText, ...]
    tokens: tuple[TaggedText, ...] = ()
    gold: Any = field(default=None, kw_only=True)

    def columns(self) -> dict[str, Any]:
        return {"predicted": [span.to_json() for span in self.spans]}

    def line(self) -> str:
        return "; ".join(f"{span.text} ({span.tag} {span.probability:.1%})" for span in self.spans) or "no span"


@dataclass(frozen=True)
class TextTags(Record, Prediction):
    """The tag of each word of a text."""

    optional = ("gold",)
    id: str
    tokens: tuple[TaggedText, ...]
    gold: Any = field(default=None, kw_only=True)

    def columns(self) -> dict[str, Any]:
        return {"predicted": [token.tag for token in self.tokens]}

    def line(self) -> str:
        return " ".join(f"{token.text}/{token.tag}" for token in self.tokens)
