"""The backbone contract of models that score reply links."""

from abc import abstractmethod

from jaxtyping import Float, Int
from torch import Tensor

from ramify.disentangle.batch import LinkBatch
from ramify.disentangle.config import History
from ramify.models.base import AnyBackbone
from ramify.nn.ragged import Rows


class LinkBackbone(AnyBackbone):
    """A body that gives a state of every pair of a message and a candidate for what it answers."""

    @property
    def reads_structure(self) -> bool:
        """Whether it reads what earlier messages answer, so that it has to be decided message by message."""
        return False

    @property
    def reads_history(self) -> bool:
        """Whether candidates are its history, too, in which each has its place, so that none can be left out."""
        return False

    @property
    def reads_features(self) -> bool:
        """Whether it reads features of a pair (`disentangle.features.pairs`)."""
        return True

    @property
    def reads_surroundings(self) -> bool:
        """Whether it reads what is said around the messages of a pair (`disentangle.features.context`)."""
        return False

    @property
    def reads_together(self) -> bool:
        """Whether the candidates of a message read each other, once each has its state."""
        return False

    @property
    def shortlist(self) -> int:
        """How many of a message's candidates read each other, the likeliest by the states that they have (0: all)."""
        return 0

    def read_together(self, x: Float[Tensor, "key out"], candidates: Rows) -> Float[Tensor, "key out"]:
        """The states, once each has read the others of its message; as they are, where they do not."""
        return x

    def check(self, input: History) -> None:
        """Raise where it cannot read a chat in this way."""
        return None

    @property
    def makes_vectors(self) -> bool:
        """Whether it can `encode` messages by themselves."""
        return False

    def encode(self, ids: Int[Tensor, " total"], rows: Rows) -> Float[Tensor, "message vector"]:
        """Vectors of messages by themselves, which can be kept (`LinkBatch.vectors`); where it `makes_vectors`."""
        raise NotImplementedError

    @property
    @abstractmethod
    def out_dim(self) -> int: ...

    @abstractmethod
    def forward(self, batch: LinkBatch) -> Float[Tensor, "key out"]: ...
