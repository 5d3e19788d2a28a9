"""Runs as functions: the docstring says what to expect, the parameters are the command line's options."""

from ramify.recipes import chats, comment_trees, shipped

RECIPES = {
    "tree-mlm": comment_trees.tree_mlm,
    "bert": comment_trees.bert,
    "feature-model": chats.feature_model,
    "links": chats.links,
    "mht": chats.mht,
    "decatt": chats.decatt,
    "esim": chats.esim,
    "bert-pair": chats.bert_pair,
    "shipped": shipped.shipped,
}
