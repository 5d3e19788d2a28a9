"""Recipes: models with settings that work, as functions. Each docstring gives the command, its cost and its results."""

from ramify.recipes import (
    comment_trees,
    disentanglement,
    downstream,
    elmo,
    generation,
    nested,
    permutation,
    running_text,
    shipped,
)
from ramify.recipes.base import Fit, Training

RECIPES: dict[str, Training] = {
    "tree-mlm": Training(comment_trees.tree_mlm),
    "bert": Training(running_text.bert),
    "roberta": Training(running_text.roberta),
    "xlnet": Training(permutation.xlnet),
    "xlnet-lm": Training(permutation.xlnet_lm),
    "elmo": Training(elmo.elmo),
    "transformer": Training(generation.transformer),
    "seq2seq": Training(generation.seq2seq),
    "gpt": Training(generation.gpt),
    "t5": Training(generation.t5),
    "agent": Training(nested.agent),
    "agent-gan": Training(nested.agent_gan),
    "agent-sentence": Training(nested.agent_sentence),
    "choose": Training(downstream.choose, seeds=True),
    "classify": Training(downstream.classify, seeds=True),
    "answer": Training(downstream.answer, seeds=True),
    "tag": Training(downstream.tag, seeds=True),
    "feature-model": Training(disentanglement.feature_model),
    "links": Training(disentanglement.links, pack=disentanglement.pack),
    "mht": Training(disentanglement.mht),
    "decatt": Training(disentanglement.decatt),
    "esim": Training(disentanglement.esim),
    "bert-pair": Training(disentanglement.bert_pair),
    "shipped": Training(shipped.shipped, pack=shipped.pack),
}

FITS: dict[str, Fit] = {
    "candidate-pruner": Fit(disentanglement.candidate_pruner, disentanglement.NEXT_COMMAND, pack=disentanglement.pack),
    "reranker": Fit(disentanglement.reranker, disentanglement.NEXT_COMMAND, pack=disentanglement.pack_with_card),
}
