"""The settings of the objective. Those of one loss stand in the file of that loss."""

from dataclasses import dataclass
from typing import Literal

from ramify.config import check_fields
from ramify.errors import RamifyError
from ramify.tasks.nested.autoencoder import AutoencoderSettings
from ramify.tasks.nested.candidates import CandidateSettings
from ramify.tasks.nested.coherence import CoherenceSettings
from ramify.tasks.nested.foreign import ForeignSettings
from ramify.tasks.nested.masked_child import MaskSettings
from ramify.tasks.nested.reconstruction import ReconstructionSettings
from ramify.tasks.nested.settings import check_not_negative


@dataclass(frozen=True)
class NestedAutoencoderConfig(
    # Saved files and tables list the settings of the last of these classes first.
    ForeignSettings,
    CoherenceSettings,
    MaskSettings,
    CandidateSettings,
    ReconstructionSettings,
    AutoencoderSettings,
):
    """Weights and options of the losses."""

    ends: Literal["class", "logistic"] = "class"
    """The end of a row above the tokens. class: the end marks are candidates beside the vectors. logistic: the cosine of a
    place's output with each end mark says whether the row ends there."""
    top: Literal["none", "collection"] = "none"
    """collection: on the highest level, too, nodes are predicted from their neighbours: the documents of the batch."""
    upper: Literal["detached", "two_phase"] = "detached"
    """Documents that are too long for one graph. detached: their chapters are encoded without a gradient. two_phase: the exact
    gradient, chapter by chapter."""
    schedule: Literal["joint", "staged"] = "joint"
    """staged: each further level begins to learn `unlock_steps` updates after the one below, or when that one's losses fall no
    further."""
    unlock_steps: int = 1000
    """The greatest number of updates before the next level begins."""
    plateau: float = 0.0
    """The next level begins when the losses of the highest one fall by less than this share in 100 updates (0: they are not
    looked at)."""
    freeze_below: bool = False
    """Whether a level stops learning when the next one begins (with staged)."""
    frozen: str | None = None
    """A level that is trained before the levels above, and whose vectors these then read: it does not learn with them, and
    neither do the levels below. null: all levels learn together. The stages of the run say when it learns again."""
    above: Literal["together", "in_turn"] = "together"
    """The levels above the frozen one. together: they learn in one stage. in_turn: each learns in a stage of its own, from the
    lowest, on vectors of the level below, which is then frozen, too."""
    encoder_only: bool = False
    """Whether the model has neither decoder nor heads, so that it embeds and does not train."""

    def __post_init__(self) -> None:
        check_fields(self, "task.")
        self.check_weights()
        self.check_autoencoder()
        self.check_reconstruction()
        self.check_candidates()
        self.check_masks()
        self.check_checkers()
        self.check_foreign()
        if self.foreign and self.marks == "none":
            raise RamifyError(
                f"task.foreign={self.foreign:g} asks of marked children whether they were replaced, but with task.marks=none "
                "there are none. Set task.marks=seed, or task.foreign=0."
            )
        check_not_negative(self, "unlock_steps", "plateau")
        if self.above == "in_turn" and self.frozen is None:
            raise RamifyError(
                "task.above=in_turn trains each level on frozen vectors of the level below, and task.frozen=none freezes none. "
                "Set task.frozen, or task.above=together."
            )
        if self.frozen is not None and self.schedule == "staged":
            raise RamifyError(
                f"task.schedule=staged lets levels begin within a stage, but task.frozen={self.frozen} teaches some levels in "
                "stages of their own. Set task.schedule=joint, or task.frozen=none with task.above=together."
            )
