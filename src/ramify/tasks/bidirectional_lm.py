"""Language modelling of running text in both directions (Peters et al. 2018, section 3.1), or forwards alone."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor, nn

from ramify.batching.characters import vocabulary_spellings
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.forest import Ints
from ramify.batching.stream_batch import StreamBatch, StreamTargets
from ramify.batching.views.streams import StreamInput
from ramify.errors import RamifyError
from ramify.models.base import ReadsCharacters, State, StreamBackbone
from ramify.nn.cache import Cache
from ramify.tasks.base import Decodes
from ramify.tasks.next_token import begun
from ramify.tasks.stream_task import Predicted, StreamTask, StreamTaskConfig
from ramify.tokenizer import Tokenizer


@dataclass(frozen=True)
class BidirectionalLMConfig(StreamTaskConfig):
    """Every token of a row is predicted from those before it in the direction of the row."""

    tie_weights: bool = False
    """Whether the output map, which both directions share, is the token embedding."""
    sampled: int | None = None
    """Number of tokens against which each target is scored in training (sampled softmax; the paper's 8,192); null: the whole
    vocabulary. Held-out losses are those of the whole vocabulary."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampled is not None and self.sampled < 1:
            raise RamifyError(
                f"task.sampled must be at least 1, but is {self.sampled}. Set it to null for the whole vocabulary."
            )

    @property
    def predicts_all_in_orders(self) -> bool:
        return False

    def build(self, backbone: StreamBackbone, tokenizer: Tokenizer, input: StreamInput) -> "BidirectionalLM":
        return BidirectionalLM(backbone, tokenizer, input, self)


class BidirectionalLM(StreamTask, Decodes):
    """Predict each token of a row from those before it, where rows of the backward direction begin at the end of the text.

    Both directions have equally many targets, so the loss is ½ (NLL→ + NLL←) per token, whose exponential is the perplexity.
    """

    name = "bidirectional_lm"
    perplexity = True
    config: BidirectionalLMConfig

    def __init__(
        self, backbone: StreamBackbone, tokenizer: Tokenizer, input: StreamInput, config: BidirectionalLMConfig
    ) -> None:
        vocabulary = backbone.config.vocab_size
        if config.sampled is not None and config.sampled >= vocabulary:
            raise RamifyError(
                f"task.sampled={config.sampled} must be below the size of the vocabulary, {vocabulary:,}. Lower it, or set "
                "task.sampled=null for the whole vocabulary."
            )
        super().__init__(backbone, tokenizer, input, config, sampled=config.sampled)
        if not config.tie_weights:
            nn.init.normal_(self.head.weight, std=backbone.out_dim**-0.5)
        self.begin = tokenizer.begin_id if tokenizer.eod_id is None else tokenizer.eod_id
        """The token before a text that is continued. In running text, that is the end of another one, in either direction."""
        self.begin_characters: UInt8[NDArray, " character"] | None = None
        """The characters of this token, for a body that reads them."""
        if isinstance(backbone, ReadsCharacters):
            spellings = vocabulary_spellings(tokenizer)
            backbone.spell(spellings)
            self.begin_characters = spellings[self.begin].copy()

    def draw(self, batch: StreamBatch, seeds: Ints) -> StreamBatch:
        """All tokens but the first are targets, whatever the seeds."""
        rows, tokens = batch.host_ids.shape
        return replace(batch, targets=StreamTargets.at(np.tile(np.arange(1, tokens), (rows, 1)), batch.input_ids))

    def counts(self, batch: StreamBatch, phase: str) -> dict[str, float]:
        return {self.name: 0.0 if batch.targets is None else batch.targets.total}

    def predict(self, batch: StreamBatch, state: State | None) -> Predicted:
        assert batch.targets is not None
        hidden = self.backbone(batch, state, targets_only=True)
        assert hidden.queries is not None
        return Predicted(hidden.queries.flatten(0, 1), batch.targets, None, hidden.state)

    def start(
        self, prompts: EncoderInput, *, source: EncoderInput | None = None
    ) -> tuple[Float[Tensor, "sequence vocab"], Cache]:
        states, cache = self.backbone.read_prompts(begun(prompts, self.begin, self.begin_characters), source)
        return self.head(states), cache

    def step(self, ids: Int[Tensor, " sequence"], cache: Cache) -> tuple[Float[Tensor, "sequence vocab"], Cache]:
        states, cache = self.backbone.read_tokens(ids, cache)
        return self.head(states), cache
