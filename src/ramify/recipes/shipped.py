"""The small checkpoint that `ramify demo` uses: its training and packing."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ramify.errors import RamifyError
from ramify.files import write_text
from ramify.recipes.options import Data, Seed, TargetTokens

if TYPE_CHECKING:
    from ramify.metrics import Interval
    from ramify.runs import Run

TITLE = "TreeMLM, small, on questions, debates and conversations"
LICENSE = "cc-by-sa-4.0"
"""Licence of the weights: share-alike, as part of the training texts requires."""

NOTES = """\
This model is small enough to ship inside the package. It is made for the demo, which shows how ancestors help to predict masked
words. For anything else, train a model on your own trees.

## Training data

Public discussions under open licences, 2,777 trees with 14,347 comments, split by tree into train, dev and test:

| set | licence | content |
|---|---|---|
| Stack Exchange: ai.stackexchange.com (2017), quantumcomputing.stackexchange.com (2018) | CC BY-SA | questions, answers, \
comments |
| OpenAssistant, 100 trees of the English evaluation set | Apache-2.0 | conversations with an assistant |
| Change My View chains (Habernal et al. 2018, "Before Name-calling", NAACL) | Apache-2.0 | debates, half of them ending in \
an insult |

The texts of Stack Exchange are by its contributors, who are named at each post on the sites above. The discussions of the
demo's sample are not in the training data, and no setting was chosen on them.

## Licence

Creative Commons Attribution-ShareAlike 4.0 (CC BY-SA 4.0), because the Stack Exchange texts ask that works made from them be
shared alike. The code of Ramify is under the Apache License 2.0.

## Limits

The training set is tiny: 2.6 million word pieces. The model reads the first {pieces} of each text, {epochs:.1f} times over.
About half of it is debate in which people insult each other, so the model can fill masks with insults. It covers English only,
and mostly two subjects: artificial intelligence and quantum computing. The model likes to repeat words of the ancestors, also
where they do not fit the grammar of the gap.

## How to train it again

The model was trained with 30 % of the tokens masked, which teaches more in a short training (Wettig et al. 2023, "Should You
Mask 15 % in Masked Language Modeling?", EACL). All results, here and in the demo, use BERT's 15 %. The weights were chosen by
the loss on the dev trees of these sets, with the right ancestors. Neither the mask rate nor the two losses of vectors
fall towards the end of training: with 4 M tokens, dev losses were 5.657 nats as it is, 5.657 with losses that fall, and 5.660
if the mask rate falls, too. The other settings are those of the recipe `tree-mlm`.

    ramify data build stackexchange --format stackexchange --out data/stackexchange
    ramify data build oasst/en_100_tree.jsonl --format oasst --out data/oasst
    ramify data build cmv-adhominem/threads.tar.bz2 --format cmv-chains --option chains=threads --out data/cmv
    ramify data export data/stackexchange data/oasst data/cmv --out data/open.jsonl
    ramify data build data/open.jsonl --format jsonl --out data/open
    OMP_NUM_THREADS=1 ramify train shipped --data data/open --out runs/shipped --pack runs/shipped/packed
"""
"""The notes of the card, with places for the numbers of a run."""


def shipped(data: Data, *, target_tokens: TargetTokens = 16_000_000, seed: Seed = 0) -> "Run":
    """Train the small checkpoint of `ramify demo` again, on openly licensed discussions.

    It has 4.4 M parameters, 8.9 MB in half precision. Training takes about an hour and a quarter on one CPU thread (set
    OMP_NUM_THREADS=1): 16 M tokens at 3,600 per second. The checkpoint's card gives the commands that build data/open, and the
    reason for the high mask rate.

    Example: ramify train shipped --data data/open --out runs/shipped --pack runs/shipped/packed
    """
    from ramify.recipes.comment_trees import tree_mlm
    from ramify.tasks.masked_lm import BERT_MASK_RATE

    run = tree_mlm(data, size="small", target_tokens=target_tokens, max_tokens=256, seed=seed)
    model: Any = run.model
    model = replace(model, dim=192, ffn_dim=768, decoder_layers=3)
    return replace(run, recipe="shipped", model=model, dev=replace(run.dev, mask_rate=BERT_MASK_RATE))


def pack(run: Path, data: str, out: Path) -> None:
    """Write the trained model in half precision, with a card that gives its scores on the test trees of its data. The packed
    model masks at BERT's rate."""
    import torch

    from ramify import hub
    from ramify.dataset.store import Store
    from ramify.inference.evaluation import gain
    from ramify.inference.fill_mask import MaskFiller
    from ramify.inference.held_out import cache_weights, measure
    from ramify.tasks.masked_lm import BERT_MASK_RATE
    from ramify.training.metrics_log import read_metrics

    def load(folder: Path, device: str) -> MaskFiller:
        pipeline = hub.load(folder, device=device)
        if not isinstance(pipeline, MaskFiller):
            raise RamifyError(f"{folder} holds a {type(pipeline).__name__}, not a masked language model. Choose another run.")
        return pipeline

    pipeline = load(run, "cpu")
    pipeline.task.config = replace(pipeline.task.config, mask_rate=BERT_MASK_RATE)
    hub.save(pipeline, out, dtype=torch.float16)
    packed = load(out, "auto")
    store = Store.open(data)
    caches = cache_weights(packed.task, store, ("tree", "none"))
    measured = measure(packed.task, store, "test", draws=8, controls=("mismatched",), caches=caches)
    scores, cached = measured.scores, measured.cached
    count = scores["tree"].count.sum()
    results = {
        "trees, comments, masked tokens": f"{measured.trees:,}, {measured.comments:,}, {count:,} ({measured.draws} draws)",
        "nats per masked token, with ancestors": f"{scores['tree'].summary()['loss']:.4f}",
        "without context": f"{scores['none'].summary()['loss']:.4f}",
        "with another tree's ancestors": f"{scores['mismatched'].summary()['loss']:.4f}",
        "with ancestors, and a cache of their words": f"{cached['tree'].summary()['loss']:.4f} (weight {caches['tree']:g})",
        "without context, but with the cache": f"{cached['none'].summary()['loss']:.4f} (weight {caches['none']:g})",
        "saved over no context": _interval(gain(scores["tree"], scores["none"])["all"]),
        "saved over another tree's ancestors": _interval(gain(scores["tree"], scores["mismatched"])["all"]),
    }
    seen = read_metrics(run)[-1]["target_tokens"] / target_tokens_per_epoch(run)
    notes = NOTES.format(pieces=packed.input.max_tokens, epochs=seen)
    card = hub.model_card(packed, title=TITLE, license=LICENSE, notes=notes, results=results)
    write_text(out / hub.CARD, card)


def target_tokens_per_epoch(run: Path) -> int:
    """The tokens that a run predicts when it visits every training text once."""
    from ramify.runs import read_run

    trained, _ = read_run(run)
    return int(trained.prepare(run).stage(0).view.target_tokens.sum())


def _interval(saved: "Interval") -> str:
    return f"{saved.value:+.4f} (95 % interval over trees {saved.low:+.4f} to {saved.high:+.4f})"
