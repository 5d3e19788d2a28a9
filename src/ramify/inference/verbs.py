"""The questions that users ask models, as data. Commands derive their options from this table.

This module imports neither torch nor NumPy, so that `ramify --help` answers at once.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal

from ramify.inference.answers import (
    Answer,
    Attention,
    Coherence,
    Conversations,
    Copyedited,
    FilledMasks,
    Generation,
    LinkPrediction,
    Nearest,
    Prediction,
    Reconstruction,
    Score,
    SpanAnswer,
    Translation,
)

ORDERS = "an XLNet with a query stream"
LEVELS = "a model of nested documents"
READS_COMMENTS = "a model of comments or texts"
READS_SOURCES = "a model that predicts texts from sources"
CONTINUES = "a model that predicts the next token"
BEGINS = "a model whose training texts have a token before them, such as a gpt or an elmo"
GENERATES = "a model with generators of documents (`ramify train agent-gan`)"
"""Abilities, which only some models with a verb have. A pipeline lists its own as `abilities`."""


class Takes(Enum):
    """The items that a verb answers about: one, or a list."""

    TREES = "trees and texts, which are nodes"
    NODE = "a text, or a node of a tree"
    PROMPT = "the beginning of a text"
    SOURCE = "a text to translate"
    QUESTION = "a question about a passage"
    DOCUMENT = "a document, or a text"
    QUERY = "a text, or a node of an index"
    LOG = "the messages of a chat log"
    LABELLED = "texts, pairs of texts, and trees"


class Streams(Enum):
    """The parts of answers that people can read before the whole is known."""

    NOTHING = "the method returns whole answers"
    ANSWERS = "the method yields its answers one by one"
    TEXT = "the method has a parameter `show`, a function that it calls with each part of a text"


class Array:
    """A NumPy array. It has no form in JSON: commands write it to files."""


@dataclass(frozen=True)
class Option:
    """A setting of a verb, with the same name in Python and as a flag."""

    name: str
    kind: Any
    """The type. Commands take a list of strings as a repeatable option, whose values may be separated by commas."""
    default: Any
    help: str
    flag: str = ""
    """The flag; empty: `--` and the name."""
    least: int | None = None
    metavar: str | None = None
    whole: bool = False
    """Whether the values of a list may hold commas, so that none is divided."""
    needs: str = ""
    """The ability without which a model lacks the option; empty if all models with the verb have it."""


@dataclass(frozen=True)
class Verb:
    """A question, which a method of some pipelines answers."""

    can: str
    """The verb and its object, behind "can"."""
    models: str
    """The models that can."""
    takes: Takes
    options: tuple[Option, ...]
    answer: type[Answer] | type[Array]
    many: bool = True
    """Whether the method takes a list of items, too, and gives a list of answers in their order. An array has the rows of all
    items."""
    together: bool = False
    """Whether the method itself takes a list, whose answers it computes together. Others are asked about one item at a time."""
    streams: Streams = Streams.NOTHING
    """The parts that are given out as soon as they are known."""


CONTEXT = Option(
    "context",
    Literal["tree", "parent", "root", "none", "null"] | None,
    None,
    "Context of the node. Default: as in training.",
)
CONTEXT_OF_COMMENT = Option(
    "context",
    Literal["tree", "none"] | None,
    None,
    "Context of a comment: its ancestors (tree) or nothing (none). Default: as in training.",
    needs=READS_COMMENTS,
)
LEVEL = Option(
    "level",
    str | None,
    None,
    "sentence, paragraph, chapter or document. Default: the lowest level of the model.",
)
IGNORE_REPLIES = Option(
    "ignore_replies",
    bool,
    False,
    "Predict the parents of all messages, to compare them with the replies that the log itself records. Default: these replies "
    "are kept, and the others predicted.",
)

PASSING = Literal["raw", "rescaled", "bank_mean", "snap"]
PASSED = (
    "raw: as the model makes it. Others need known vectors: rescaled to their mean length, their mean by probability, or "
    "snapped to the likeliest."
)

VERBS: dict[str, Verb] = {
    "embed": Verb(
        "embed",
        "a model of texts, comments or documents",
        Takes.TREES,
        (
            Option(
                "level",
                str | None,
                None,
                "Models of nested documents: the level whose nodes are embedded, such as sentence or chapter.",
                needs=LEVELS,
            ),
            CONTEXT_OF_COMMENT,
        ),
        Array,
    ),
    "fill_mask": Verb(
        "fill masks",
        "a masked language model or an XLNet",
        Takes.NODE,
        (
            CONTEXT,
            Option("top_k", int, 5, "Number of tokens to show per mask.", least=1),
            Option(
                "candidates", list[str] | None, None, "Words to choose from, separated by commas; repeatable.", metavar="WORD,…"
            ),
            Option("joint", bool, False, "Also fill all masks jointly, by beam search."),
        ),
        FilledMasks,
    ),
    "score": Verb(
        "score texts",
        "a masked language model, a gpt, or an XLNet with a query stream",
        Takes.NODE,
        (
            CONTEXT,
            Option(
                "order",
                str | None,
                None,
                "XLNet only: forward (default), backward, or random:N for N random orders.",
                metavar="ORDER",
                needs=ORDERS,
            ),
            Option("seed", int, 0, "Seed of the random orders.", needs=ORDERS),
            Option(
                "begin",
                bool,
                True,
                "Begin with the token before each training text, given which the first token is scored. --no-begin: the first "
                "token is not scored, as in the loss of transformers.",
                flag="--begin/--no-begin",
                needs=BEGINS,
            ),
        ),
        Score,
    ),
    "generate": Verb(
        "generate text",
        "a model that predicts the next token, such as a gpt, or an XLNet with a query stream; or a model of nested documents "
        "with generators (`ramify train agent-gan`)",
        Takes.PROMPT,
        (
            Option("tokens", int, 50, "Greatest number of tokens.", least=1, needs=CONTINUES),
            Option("temperature", float, 1.0, "Below 1: likelier tokens. 0: always the likeliest.", needs=CONTINUES),
            Option("top_k", int | None, None, "Sample from so many of the likeliest tokens.", needs=CONTINUES),
            Option(
                "top_p", float | None, None, "Sample from the likeliest tokens of this probability together.", needs=CONTINUES
            ),
            Option("seed", int, 0, "Equal seeds give equal texts."),
            Option(
                "stop",
                list[str] | None,
                None,
                "A piece of the vocabulary that ends the text; repeatable.",
                metavar="PIECE",
                whole=True,
                needs=CONTINUES,
            ),
            Option(
                "begin",
                bool | None,
                None,
                "Begin with the token before each training text, or with the prompt. Default: as saved with the model: --begin "
                "for models that Ramify trained, --no-begin for checkpoints of GPT-2, as in transformers. An empty prompt "
                "always begins with the token.",
                flag="--begin/--no-begin",
                needs=BEGINS,
            ),
            Option("beam", int | None, None, "Search for the likeliest text with a beam of this width.", needs=CONTINUES),
            Option(
                "n_best", int, 1, "With --beam: number of texts to print, best first, each behind its score.", needs=CONTINUES
            ),
            Option(
                "length_penalty",
                float,
                0.6,
                "With --beam: α of the score log p / ((5 + length) / 6)^α. 0: log p.",
                needs=CONTINUES,
            ),
            Option(
                "level",
                str | None,
                None,
                "Models with generators: the level that is generated, such as paragraph, chapter or document. Default: the one "
                "above the lowest.",
                needs=GENERATES,
            ),
            Option("count", int, 1, "Models with generators: number of texts.", least=1, needs=GENERATES),
            Option(
                "copyedit",
                int,
                1,
                "Models with generators: passes of copyediting over each level before a text is written. 0: none.",
                least=0,
                needs=GENERATES,
            ),
            Option(
                "epsilon",
                float,
                0.1,
                "Models with generators: share of the way to its prediction that a node moves in one pass of copyediting.",
                needs=GENERATES,
            ),
            Option(
                "passing",
                PASSING,
                "raw",
                f"Models with generators: the vectors that decoders pass on to the level below. {PASSED}",
                needs=GENERATES,
            ),
        ),
        Generation,
        together=True,
        streams=Streams.TEXT,
    ),
    "translate": Verb(
        "translate",
        "a model that predicts texts from sources (`ramify train transformer` or `seq2seq`)",
        Takes.SOURCE,
        (
            Option("beam", int, 4, "Width of the beam search. 1: always the likeliest token.", least=1),
            Option("n_best", int, 1, "Number of translations, best first.", least=1),
            Option("length_penalty", float, 0.6, "α of the score log p / ((5 + length) / 6)^α. 0: log p."),
        ),
        Translation,
        together=True,
    ),
    "answer": Verb(
        "answer questions",
        "a model of answers in passages (`ramify train answer`)",
        Takes.QUESTION,
        (Option("n_best", int, 1, "Number of spans, best first.", least=1),),
        SpanAnswer,
        together=True,
    ),
    "attention": Verb(
        "show attention heads",
        "a Transformer of texts or comments, or a recurrent seq2seq with model.attention=dot",
        Takes.NODE,
        (
            CONTEXT,
            Option("layer", int | None, None, "Only this layer, counted from 1.", least=1),
            Option("head", int | None, None, "Only this head, counted from 1.", least=1),
            Option(
                "order",
                Literal["forward", "backward", "random"] | None,
                None,
                "XLNet only: a factorization order. Default: each token is predicted from all others.",
                needs=ORDERS,
            ),
            Option("seed", int, 0, "Seed of the random order.", needs=ORDERS),
            Option(
                "target",
                str | None,
                None,
                "Translators only: the text that is predicted from the source. Default: the model's own translation.",
                needs=READS_SOURCES,
            ),
        ),
        Attention,
    ),
    "reconstruct": Verb(
        "reconstruct documents",
        "a model of nested documents with decoders (`ramify train agent`)",
        Takes.DOCUMENT,
        (LEVEL,),
        Reconstruction,
    ),
    "coherence": Verb(
        "judge coherence",
        "a model of nested documents with checkers (`ramify train agent`)",
        Takes.DOCUMENT,
        (
            Option(
                "levels",
                list[str] | None,
                None,
                "Judge the nodes of this level only; repeatable. Default: all levels of the model.",
                flag="--level",
            ),
        ),
        Coherence,
    ),
    "copyedit": Verb(
        "copyedit documents",
        "a model of nested documents (`ramify train agent`)",
        Takes.DOCUMENT,
        (
            Option("epsilon", float, 0.1, "Share of the way to its prediction that a node moves in one pass."),
            Option("passes", int, 1, "Number of passes over each level.", least=0),
            Option(
                "order",
                Literal["per_level", "traversal"],
                "per_level",
                "per_level: all passes of a level, then the levels below. traversal: one pass of all levels, then the next.",
            ),
            Option(
                "propagate",
                Literal["regenerate", "delta"],
                "delta",
                "Nodes below an edited one. delta: they move by the difference of what its new and its old vector decode to. "
                "regenerate: they are written anew.",
            ),
            Option(
                "update",
                Literal["simultaneous", "sequential"],
                "simultaneous",
                "simultaneous: all nodes of a level from old vectors. sequential: one node of a parent after the other.",
            ),
            Option(
                "towards",
                Literal["masked", "siblings_mean", "random_vector", "noise"],
                "masked",
                "masked: the prediction of the node from its siblings. The others are controls: the mean of its siblings, a "
                "known vector (--bank), or a random direction.",
            ),
            Option("prediction", PASSING, "raw", f"The vector that a prediction stands for. {PASSED}"),
            Option("passing", PASSING, "raw", f"The vectors that decoders pass on to the level below. {PASSED}"),
            Option(
                "lowest",
                Literal["sentence", "token"],
                "sentence",
                "token: the tokens of each sentence are edited, too, after all levels above.",
            ),
            Option("seed", int, 0, "Seed of random controls."),
        ),
        Copyedited,
    ),
    "predict": Verb(
        "predict labels",
        "a model that was trained on labels (`ramify train classify`)",
        Takes.LABELLED,
        (),
        Prediction,
        together=True,
    ),
    "nearest": Verb(
        "find nearest nodes",
        "a model of texts, comments or documents",
        Takes.QUERY,
        (
            replace(LEVEL, help=f"Models of nested documents: {LEVEL.help}", needs=LEVELS),
            CONTEXT_OF_COMMENT,
            Option("k", int, 10, "Number of nodes.", flag="-k", least=1),
        ),
        Nearest,
    ),
    "disentangle": Verb(
        "disentangle logs",
        "a disentanglement model",
        Takes.LOG,
        (IGNORE_REPLIES, Option("beam", int, 1, "Beam width of models that read their own decisions.", least=1)),
        Conversations,
    ),
    "follow": Verb(
        "follow live channels",
        "a disentanglement model",
        Takes.LOG,
        (IGNORE_REPLIES,),
        LinkPrediction,
        many=False,
        streams=Streams.ANSWERS,
    ),
}
"""Each verb by the name of its method. A line is enough for a command: `cli` makes one of it."""
