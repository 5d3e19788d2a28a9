"""The systems, one a file. `MODELS` names them for runs and saved models."""

from ramify.models.bert import Bert, BertConfig
from ramify.models.bert_pair import BertPair, BertPairConfig
from ramify.models.decomposable_attention import DecomposableAttention, DecomposableAttentionConfig
from ramify.models.esim import ESIM, ESIMConfig
from ramify.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.models.mht import MaskedHierarchicalTransformer, MHTConfig
from ramify.models.tree_mlm import TreeMLM, TreeMLMConfig

MODELS = {
    "bert": (BertConfig, Bert),
    "bert-pair": (BertPairConfig, BertPair),
    "decatt": (DecomposableAttentionConfig, DecomposableAttention),
    "esim": (ESIMConfig, ESIM),
    "feature-model": (FeatureModelConfig, FeatureModel),
    "mht": (MHTConfig, MaskedHierarchicalTransformer),
    "tree-mlm": (TreeMLMConfig, TreeMLM),
}
