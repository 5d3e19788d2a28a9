"""Predict the links of whole logs, message by message or by a beam search."""

from ramify.disentangle.config import DecodingConfig
from ramify.disentangle.data.channel import Ints
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.inference.beam import search_structures
from ramify.disentangle.inference.decode import LinkDecisions, decode
from ramify.disentangle.inference.predict import ReplyHistory, predict_posterior
from ramify.disentangle.posterior import NOTHING_RECORDED, RecordedLinks
from ramify.disentangle.task import ReplyLinking
from ramify.errors import RamifyError


def predict_links(
    task: ReplyLinking,
    decoding: DecodingConfig,
    logs: Logs,
    *,
    history: ReplyHistory = "predicted",
    beam: int = 1,
    start: Ints | None = None,
    recorded: RecordedLinks = NOTHING_RECORDED,
) -> LinkDecisions:
    """Predict the links of every message of each log, from its message `start` on, but for those with `recorded` links, which
    keep them.

    A `beam` above 1 keeps that many reply structures of a log and returns the most probable one, instead of deciding on one
    link after another. Raises `RamifyError` for such a beam if the model reads no reply structure, because its most probable
    links already make the most probable structure, and if `history` is gold.
    """
    if beam == 1:
        posteriors = predict_posterior(task, decoding, logs, history=history, start=start, recorded=recorded)
        return decode(posteriors, logs, decoding)
    if history == "gold":
        raise RamifyError(
            f"beam={beam} searches among the model's own decisions and cannot read gold links. Set history=predicted, or "
            "beam=1."
        )
    if not task.backbone.reads_structure or task.config.objective == "binary" or decoding.threshold:
        raise RamifyError(
            f"beam={beam} needs a model that reads the parents of earlier messages and decides on one parent per message; for "
            "any other model the most probable links already make the most probable structure. Set beam=1."
        )
    if decoding.decide != "link":
        raise RamifyError(
            f"beam={beam} needs decisions by link, but decoding.decide={decoding.decide}. Set beam=1 or decoding.decide=link."
        )
    return search_structures(task, decoding, logs, beam, logs.offsets[:-1] if start is None else start, recorded)
