"""The systems, one a file. `MODELS` names them for runs and saved models."""

from ramify.models.bert import Bert, BertConfig
from ramify.models.feature_model import FeatureModel, FeatureModelConfig
from ramify.models.mht import MaskedHierarchicalTransformer, MHTConfig
from ramify.models.tree_mlm import TreeMLM, TreeMLMConfig

MODELS = {
    "bert": (BertConfig, Bert),
    "feature-model": (FeatureModelConfig, FeatureModel),
    "mht": (MHTConfig, MaskedHierarchicalTransformer),
    "tree-mlm": (TreeMLMConfig, TreeMLM),
}
