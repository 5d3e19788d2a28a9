"""Settings of disentanglement: input, objective and decoding."""

from dataclasses import dataclass
from typing import Literal

from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.tokenizer import TextLayout


@dataclass(frozen=True)
class ChatInput:
    """Input settings for chats. They are saved with the model, so that it is used as it was trained."""

    window: int = 100
    """Number of earlier messages that are candidate parents of a message."""
    causal: bool = False
    """Read no later message, as a live channel requires."""
    reproduce_published: bool = False
    """Repeat the quirks of the features' published code (see `ChannelBuilder`)."""

    texts: Literal["words", "pieces"] = "words"
    """words: whole words, learned from the training logs. pieces: word pieces of a checkpoint's tokenizer."""
    dataset_tokens: bool = False
    """Take the words of a message from the data set (built with `--option tokens=beside`) instead of splitting its text
    (texts = words)."""
    author_in_text: bool = True
    """Put the author's name before the text (texts = pieces)."""
    max_tokens: int = 64
    """Longest message, with CLS and SEP (texts = pieces)."""
    layout: TextLayout = "bert"
    """The special tokens around a message (texts = pieces)."""

    def __post_init__(self) -> None:
        check_fields(self, "input.")
        if self.window < 1:
            raise RamifyError(f"input.window must be at least 1, but is {self.window}.")
        if self.max_tokens < 3:
            raise RamifyError(f"input.max_tokens must be at least 3, to hold CLS and SEP, but is {self.max_tokens}.")


Objective = Literal["listwise", "ranking", "binary"]


@dataclass(frozen=True)
class LinkConfig:
    """Settings of the objective and of the parts that are learned."""

    objective: Objective = "listwise"
    """listwise: one choice among the message itself and its candidates. ranking: one choice among the candidates alone.
    binary: one decision per candidate."""
    score: Literal["sum", "linear"] = "linear"
    """A pair's score: the sum of its state, as in the code of Kummerfeld et al., or a learned linear map of it."""
    positive_weight: float = 1.0
    """Weight of a linked pair beside an unlinked one (binary)."""
    conversation_weight: float = 0.0
    """Weight of the conversation's loss beside the link's: training then also raises the total probability of all candidates
    in the parent's conversation (listwise). Not in the papers."""
    num_candidates: int = 0
    """Candidates of a message that the model scores: the message itself, and those that a candidate pruner ranks highest
    (`disentangle.candidate_pruner`); 0: all. The pruner is fitted after the model (listwise). Not in the papers."""
    reranker_dim: int = 0
    """Size of the hidden layers of a reranker of the likeliest candidates (`disentangle.reranker`); 0: there is none. The
    reranker is fitted after the model (listwise). Not in the papers."""
    lookahead: bool = False
    """The reranker reads features of later messages, too (`features.lookahead`). Live channels have no later messages, so they
    skip such a reranker."""

    def __post_init__(self) -> None:
        check_fields(self, "task.")
        for name in ("num_candidates", "reranker_dim", "conversation_weight"):
            value = getattr(self, name)
            if value < 0:
                raise RamifyError(f"task.{name} must not be negative, but is {value}.")
            if value and self.objective != "listwise":
                raise RamifyError(
                    f"task.{name}={value} needs task.objective=listwise, not {self.objective}. Set task.{name}=0."
                )
        if self.num_candidates == 1:
            raise RamifyError(
                "task.num_candidates=1 leaves a message no candidate but itself. Set 2 or more, or 0 for all candidates."
            )
        if self.lookahead and not self.reranker_dim:
            raise RamifyError("task.lookahead=true needs a reranker. Set task.reranker_dim, or task.lookahead=false.")
        if self.positive_weight <= 0:
            raise RamifyError(f"task.positive_weight must be positive, but is {self.positive_weight}.")


@dataclass(frozen=True)
class DecodingConfig:
    """Settings of the decisions on links. Nothing here is learned, so a trained model may be used with other settings."""

    start_odds: float = 1.0
    """Factor on the odds that a message starts a conversation. A wrong start costs a conversation more than a wrong link.
    Choose it on held-out logs (listwise)."""
    decide: Literal["link", "conversation", "comembership"] = "link"
    """link: the likeliest candidate is the parent. conversation: the likeliest candidate in the conversation with the largest
    total probability. comembership: the likeliest candidate in the conversation of the message that most probably shares one
    with the child (`inference.comembership`); a start if no message does so with more than even odds. The last two need
    task.objective=listwise and are not in the papers."""
    threshold: float = 0.0
    """A message also answers every candidate at least this probable, within its conversation unless decide = link (0: the
    likeliest alone, as in the published figures). The paper does not say; choose it on held-out logs."""
    answers: Literal["anyone", "others"] = "anyone"
    """Messages that may be parents: all, or those of other authors alone, for data that do not call a continuation a reply
    (listwise, binary). Not in the papers."""
    starts: bool = True
    """Messages may start a conversation. Reply trees hold one conversation each and are always decoded without starts; so is
    every model of task.objective=ranking."""
    online: bool = False
    """Decide whole logs as a live channel would: without lookahead."""

    def __post_init__(self) -> None:
        check_fields(self, "decoding.")
        if not 0 <= self.threshold < 1:
            raise RamifyError(f"decoding.threshold must be at least 0 and below 1, but is {self.threshold}.")
        if self.start_odds <= 0:
            raise RamifyError(f"decoding.start_odds must be positive, but is {self.start_odds}.")

    def check(self, objective: Objective) -> None:
        """Raise `RamifyError` for a setting that does not suit models of this objective."""
        default = DecodingConfig()
        listwise = () if objective == "listwise" else ("start_odds", "decide")
        several = ("threshold", "answers") if objective == "ranking" else ()
        for name in (*listwise, *several):
            value, usual = getattr(self, name), getattr(default, name)
            if value != usual:
                needed = "listwise" if name in listwise else "listwise or binary"
                raise RamifyError(
                    f"decoding.{name}={value} needs a model of task.objective={needed}, not {objective}. "
                    f"Set decoding.{name}={usual}."
                )
