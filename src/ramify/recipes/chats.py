"""Who replied to whom in chat logs."""

from ramify.chat.history import History
from ramify.models.feature_model import FeatureModelConfig
from ramify.run import BlockConfig, LinkDevConfig, Run, WordsConfig, sized
from ramify.tasks.reply_to import ReplyToConfig
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
