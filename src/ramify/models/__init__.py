"""The systems, one a file. `MODELS` names them for runs and saved models."""

from ramify.models.bert import Bert, BertConfig
from ramify.models.tree_mlm import TreeMLM, TreeMLMConfig

MODELS = {
    "bert": (BertConfig, Bert),
    "tree-mlm": (TreeMLMConfig, TreeMLM),
}
