"""The small checkpoint that Ramify ships for its demo: how it was trained, and how it is packed."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ramify.errors import RamifyError
from ramify.files import write_text
from ramify.recipes.options import Data, Seed, TargetTokens

if TYPE_CHECKING:
    from ramify.metrics import Interval
    from ramify.runs import Run

TITLE = "TreeMLM, small, on questions, debates and conversations"
LICENSE = "cc-by-sa-4.0"
"""The licence of the weights: part of the texts asks that what is made from them be shared alike."""

NOTES = """\
Small enough to travel inside the package, and meant for its demo: a first look at what ancestors do for masked words. Train
on trees of your own for anything else.

## Training data

Public discussions under open licences, 2,777 trees with 14,347 comments, split by tree into train, dev and test:

| set | licence | what it is |
|---|---|---|
| Stack Exchange: ai.stackexchange.com (2017), quantumcomputing.stackexchange.com (2018) | CC BY-SA | questions, answers, \
comments |
| OpenAssistant, 100 trees of the English evaluation set | Apache-2.0 | conversations with an assistant |
| Change My View chains (Habernal et al. 2018, "Before Name-calling", NAACL) | Apache-2.0 | debates, half of them ending in \
an insult |

The texts of Stack Exchange are by its contributors, who are named at each post on the sites above. None of the discussions of
the demo's sample was seen in training, and no setting was chosen by looking at them.

## Licence

Creative Commons Attribution-ShareAlike 4.0 (CC BY-SA 4.0), because the Stack Exchange texts ask that works made from them be
shared alike. The code of Ramify is under the Apache License 2.0.

## Limits

The training set is tiny: 2.6 million word pieces, its comments read five and a half times. About half of it is debate in which
people insult each other, so the model can be made to fill masks with insults. It knows English only, and mostly two subjects:
artificial intelligence and quantum computing.

## How to train it again

It was trained with 40 % of the tokens masked, which teaches more in a short training (Wettig et al. 2023, "Should You Mask 15 %
in Masked Language Modeling?", EACL); everything below, and the demo, is measured with BERT's 15 %. Settings were chosen by the
loss on the dev trees of these sets.

    ramify data build stackexchange --format stackexchange --out data/stackexchange
    ramify data build oasst/en_100_tree.jsonl --format oasst --out data/oasst
    ramify data build cmv-adhominem/threads.tar.bz2 --format cmv-chains --out data/cmv
    ramify data export data/stackexchange data/oasst data/cmv --out data/open.jsonl
    ramify data build data/open.jsonl --format jsonl --out data/open
    OMP_NUM_THREADS=1 ramify train shipped --data data/open --out runs/shipped --pack runs/shipped/packed
"""


def shipped(data: Data, *, target_tokens: TargetTokens = 8_000_000, seed: Seed = 0) -> "Run":
    """The small checkpoint that `ramify demo` uses, trained again on openly licensed discussions.

    4.3 M parameters, 8.6 MB in half precision; about 45 minutes of one CPU thread (set OMP_NUM_THREADS=1). The checkpoint's
    card says how data/open is built and why so many tokens are masked.

    Example: ramify train shipped --data data/open --out runs/shipped --pack runs/shipped/packed
    """
    from ramify.batching.views.comment_trees import TextInput
    from ramify.models.tree_mlm import TreeMLMConfig
    from ramify.runs.comment_trees import CommentTreeRun, TokenizerConfig
    from ramify.tasks.masked_lm import MaskedLMConfig
    from ramify.training.config import TrainConfig

    return CommentTreeRun(
        recipe="shipped",
        data=data,
        model=TreeMLMConfig(dim=192, ffn_dim=768, encoder_layers=2, decoder_layers=3, norm="pre", max_tokens=256),
        task=MaskedLMConfig(mask_rate=0.4),
        input=TextInput(max_tokens=256, max_context=128),
        stages=(TrainConfig(target_tokens=target_tokens, budget=2048, lr=2e-3, evaluate_every=400, checkpoint_every=400),),
        tokenizer=TokenizerConfig(vocab_size=8192),
        seed=seed,
    )


def pack(run: Path, data: str, out: Path) -> None:
    """Write the trained model in half precision, with a card that holds its scores on the test trees of its data. The packed
    model masks at BERT's rate."""
    import torch

    from ramify import hub
    from ramify.dataset.store import Store
    from ramify.inference.evaluation import gain
    from ramify.inference.fill_mask import MaskFiller
    from ramify.inference.held_out import measure
    from ramify.tasks.masked_lm import MaskedLMConfig

    pipeline = hub.load(run)
    if not isinstance(pipeline, MaskFiller):
        raise RamifyError(f"{run} holds no masked language model.")
    pipeline.task.config = replace(pipeline.task.config, mask_rate=MaskedLMConfig().mask_rate)
    hub.save(pipeline, out, dtype=torch.float16)
    packed = hub.load(out, device="auto")
    assert isinstance(packed, MaskFiller)
    found = measure(packed.task, Store.open(data), "test", draws=8, controls=("mismatched",))
    scores = found.scores
    count = scores["tree"].count.sum()
    results = {
        "trees, comments, masked tokens": f"{found.trees:,}, {found.comments:,}, {count:,} ({found.draws} draws)",
        "nats per masked token, with ancestors": f"{scores['tree'].summary()['loss']:.4f}",
        "without context": f"{scores['none'].summary()['loss']:.4f}",
        "with another tree's ancestors": f"{scores['mismatched'].summary()['loss']:.4f}",
        "saved, against without context": _interval(gain(scores["tree"], scores["none"])["all"]),
        "saved, against another tree's ancestors": _interval(gain(scores["tree"], scores["mismatched"])["all"]),
    }
    card = hub.model_card(packed, title=TITLE, license=LICENSE, notes=NOTES, results=results)
    write_text(out / hub.CARD, card)


def _interval(saved: "Interval") -> str:
    return f"{saved.value:+.4f} (95 % interval over trees {saved.low:+.4f} to {saved.high:+.4f})"
