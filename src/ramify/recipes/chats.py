"""Who replied to whom in chat logs."""

from pathlib import Path

import torch

from ramify import hub
from ramify.chat.history import History
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.files import write_text
from ramify.metrics.conversations import score
from ramify.models.feature_model import FeatureModelConfig
from ramify.run import BlockConfig, LinkDevConfig, Run, WordsConfig, sized
from ramify.tasks.linking import measure
from ramify.tasks.reply_to import ReplyTo, ReplyToConfig
from ramify.train import TrainConfig


def feature_model(data: str, *, steps: int = 5600, init: str = "", causal: bool = False, seed: int = 0) -> Run:
    """The feed-forward model of Kummerfeld et al. (2019): 77 features of a pair of messages, and the words of both.

    `ramify train feature-model --data DIR --out RUN`: 1.7 M parameters. The paper trains by single messages with SGD; this does
    by 64 with Adam, which is as good and takes ten minutes of a core for the 60,000 messages of the Ubuntu logs (six epochs).
    """
    stage = TrainConfig(
        steps=steps,
        budget=64,
        budget_unit="targets",
        lr=1e-3,
        warmup=0.03,
        weight_decay=1e-4,
        betas=(0.9, 0.99),
        evaluate_every=900,
        checkpoint_every=900,
    )
    return Run(
        recipe="feature-model",
        data=data,
        model=sized(FeatureModelConfig(), init),
        task=ReplyToConfig(score="sum"),
        reading=History(causal=causal),
        view=BlockConfig(),
        tokenizer=WordsConfig(),
        dev=LinkDevConfig(),
        stages=(stage,),
        init=init,
        seed=seed,
    )


LICENSE = "cc-by-4.0"
TITLE = "Who replied to whom: the model that comes with Ramify"
NOTES = """Trained on the training logs of the Ubuntu IRC disentanglement data (Kummerfeld et al. 2019, CC BY 4.0), all but
one in ten, held out by a hash of their names, on which the best weights were chosen. It is told no years. The commands:

    ramify data build ubuntu-irc/train --format irc --split 0.9,0.1,0 --policy empty=keep --out data/irc
    ramify train feature-model --data data/irc --out runs/irc --set model.years=false --pack runs/irc/packed
"""


def pack(run: Path, data: Path, out: Path) -> None:
    """Write the trained model in half precision, with a card that holds what it reaches on the dev logs of its data."""
    task = hub.load(run)
    if not isinstance(task, ReplyTo):
        raise RamifyError(f"{run} holds no model of who replied to whom.")
    hub.save(task, out, dtype=torch.float16)
    packed = hub.load(out)
    assert isinstance(packed, ReplyTo)
    found = measure(packed, Store.open(data), "dev")
    scores = score(found.logs)
    results = {
        "logs, messages whose link is known": f"{len(found.logs)}, {sum(len(log.messages) for log in found.logs):,}",
        "links: precision, recall, F": " / ".join(f"{value:.2f}" for value in scores["link"].values()),
        "conversations found exactly: precision, recall, F": " / ".join(f"{value:.2f}" for value in scores["cluster"].values()),
        "1 − variation of information": f"{scores['vi']:.2f}",
        "one-to-one": f"{scores['one_to_one']:.2f}",
    }
    write_text(out / hub.CARD, hub.model_card(packed, title=TITLE, license=LICENSE, notes=NOTES, results=results))
