"""The contract of backbones that score reply links."""

from abc import abstractmethod

from jaxtyping import Float, Int
from torch import Tensor

from ramify.disentangle.batch import LinkBatch
from ramify.disentangle.config import ChatInput
from ramify.models.base import AnyBackbone
from ramify.nn.ragged import Rows


class LinkBackbone(AnyBackbone):
    """A body that gives a state of every pair of a message and a candidate parent."""

    @property
    def reads_structure(self) -> bool:
        """Whether it reads the parents of earlier messages, so that it decides message by message."""
        return False

    @property
    def reads_history(self) -> bool:
        """Whether it reads all candidates of a message as a history, so that none can be left out."""
        return False

    @property
    def reads_features(self) -> bool:
        """Whether it reads features of a pair (`disentangle.features.pairs`)."""
        return True

    @property
    def reads_context_features(self) -> bool:
        """Whether it reads features of the messages around a pair (`disentangle.features.context`)."""
        return False

    @property
    def listwise(self) -> bool:
        """Whether the candidates of a message attend to each other, once each has its state."""
        return False

    @property
    def attention_candidates(self) -> int:
        """Number of a message's candidates that attend to each other, the highest-scored by their states (0: all)."""
        return 0

    def attend_candidates(self, x: Float[Tensor, "key out"], candidates: Rows) -> Float[Tensor, "key out"]:
        """The states after the candidates of each message have attended to each other; unchanged unless `listwise`."""
        return x

    def check_input(self, input: ChatInput) -> None:
        """Raise where it cannot read a chat by these settings."""
        return None

    @property
    def encodes_messages(self) -> bool:
        """Whether it can `encode` single messages."""
        return False

    def encode(self, ids: Int[Tensor, " total"], rows: Rows) -> Float[Tensor, "message vector"]:
        """Vectors of single messages, which can be kept (`LinkBatch.vectors`), where it `encodes_messages`."""
        raise NotImplementedError

    @property
    @abstractmethod
    def out_dim(self) -> int: ...

    @abstractmethod
    def forward(self, batch: LinkBatch) -> Float[Tensor, "key out"]: ...
