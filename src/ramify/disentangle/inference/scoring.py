"""From batches to posteriors."""

from collections.abc import Iterable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from ramify.disentangle.batch import LinkBatch
from ramify.disentangle.config import DecodingConfig
from ramify.disentangle.posterior import LinkPosterior, RecordedLinks
from ramify.disentangle.task import ReplyLinking


def score_candidates(task: ReplyLinking, decoding: DecodingConfig, batch: LinkBatch) -> Float[Tensor, " key"]:
    """The probabilities of the candidates, without dropout and gradients."""
    # Entered batch by batch: a generator must not leave its caller without gradients.
    with task.evaluating(), torch.no_grad():
        return task.probabilities(task.scores(batch, decoding), batch, decoding)


def score_batch(task: ReplyLinking, decoding: DecodingConfig, batch: LinkBatch) -> LinkPosterior:
    probabilities = score_candidates(task, decoding, batch).float().cpu().numpy()
    return LinkPosterior(batch.source, batch.key_source, batch.candidates.host_lengths, probabilities)


def score_batches(
    task: ReplyLinking, decoding: DecodingConfig, batches: Iterable[LinkBatch], recorded: RecordedLinks
) -> Iterator[LinkPosterior]:
    """The posterior of each batch, with certainty about recorded links."""
    for batch in batches:
        yield score_batch(task, decoding, batch).keep(recorded, task.input.window)
