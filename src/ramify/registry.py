"""Names of models and tasks: what run.json and config.json call them."""

from collections.abc import Mapping
from typing import Any

from ramify.batching.views.comment_trees import Reading
from ramify.disentangle.config import History
from ramify.disentangle.models.bert_pair import BertPair, BertPairConfig
from ramify.disentangle.models.decomposable_attention import DecomposableAttention, DecomposableAttentionConfig
from ramify.disentangle.models.esim import ESIM, ESIMConfig
from ramify.disentangle.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.disentangle.models.mht import MaskedHierarchicalTransformer, MHTConfig
from ramify.disentangle.task import ReplyTo, ReplyToConfig
from ramify.models.bert import Bert, BertConfig
from ramify.models.tree_mlm import TreeMLM, TreeMLMConfig
from ramify.tasks.masked_lm import MaskedLM, MaskedLMConfig

MODELS = {
    "bert": (BertConfig, Bert),
    "bert-pair": (BertPairConfig, BertPair),
    "decatt": (DecomposableAttentionConfig, DecomposableAttention),
    "esim": (ESIMConfig, ESIM),
    "feature-model": (FeatureModelConfig, FeatureModel),
    "mht": (MHTConfig, MaskedHierarchicalTransformer),
    "tree-mlm": (TreeMLMConfig, TreeMLM),
}

TASKS = {
    "masked-lm": (MaskedLMConfig, MaskedLM),
    "reply-to": (ReplyToConfig, ReplyTo),
}

READINGS = {
    "masked-lm": Reading,
    "reply-to": History,
}
"""How a model of each reads: saved with it."""


def registered_name(table: Mapping[str, tuple[type, type]], config: Any) -> str:
    """What a table of this file calls the model or task that has this config."""
    return next(name for name, (kind, _) in table.items() if kind is type(config))
