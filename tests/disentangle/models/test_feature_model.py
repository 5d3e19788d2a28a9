"""The feature model against one plain network on whole vectors of pairs."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fixtures import channel
from ramify.disentangle.batch import LinkBatch, LinkCollator
from ramify.disentangle.config import ChatInput
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.candidates import list_candidates
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.words import learn_vocabulary
from ramify.disentangle.features.context import CONTEXT_FEATURES
from ramify.disentangle.features.pairs import FEATURES, compute_features
from ramify.disentangle.models.feature_model import ACTIVATIONS, Activation, FeatureModel, FeatureModelConfig
from ramify.errors import RamifyError

INPUT = ChatInput(window=7)


def logs_of(*sizes: int) -> Logs:
    trees = [channel(size, seed) for seed, size in enumerate(sizes)]
    logs = Logs.build(trees, INPUT)
    return logs.tokenize(learn_vocabulary((words for own in logs.channels for words in own.tokens), min_count=2))


def batch_of(logs: Logs, examples: list[int] | None = None, block: int = 5) -> LinkBatch:
    view = Blocks(logs, np.arange(len(logs)), block=block)
    return LinkCollator(logs)([view.example(number) for number in examples or range(len(view))])


def model(logs: Logs, **changes: object) -> FeatureModel:
    torch.manual_seed(0)
    sizes = {"vocab_size": int(logs.ids.max()) + 1, "dim": 6, "hidden": 16}
    return FeatureModel(FeatureModelConfig(**(sizes | changes))).eval()  # pyright: ignore[reportArgumentType]


def whole_vectors(own: FeatureModel, logs: Logs) -> torch.Tensor:
    """Inputs of the paper's first layer: features of the pair, and the maximum and the mean of both messages' word vectors."""
    rows = []
    for log, chat in enumerate(logs.channels):
        targets = np.arange(len(chat))
        near = list_candidates(targets, INPUT.window)
        found = torch.from_numpy(compute_features(chat, targets, near))
        for late in targets.tolist():
            for place, early in enumerate(near[late].tolist()):
                if early >= 0:
                    both = [texts(own, logs, log, each) for each in (late, early)]
                    late_part, early_part, pair = found[late, place].split([33, 17, 27])
                    rows.append(torch.cat([both[0], late_part, both[1], early_part, pair]))
    return torch.stack(rows)


def texts(own: FeatureModel, logs: Logs, log: int, message: int) -> torch.Tensor:
    if own.embedding is None:
        return torch.zeros(0)
    place = int(logs.offsets[log]) + message
    words = own.embedding(
        torch.from_numpy(logs.ids[logs.token_offsets[place] : logs.token_offsets[place + 1]].astype(np.int64))
    )
    return torch.cat([words.max(0).values, words.mean(0)])


@pytest.mark.parametrize("dim", [0, 6])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("num_layers", [0, 1, 3])
def test_shared_parts_add_up_to_one_network(dim: int, activation: Activation, num_layers: int) -> None:
    logs = logs_of(17, 9)
    own = model(logs, dim=dim, activation=activation, num_layers=num_layers)
    x = whole_vectors(own, logs)
    assert x.shape[1] == own.in_dim == len(FEATURES) + 4 * dim
    for layer in own.layers:
        assert isinstance(layer, torch.nn.Linear)
        x = ACTIVATIONS[activation](torch.nn.functional.linear(x, layer.weight, layer.bias))
    torch.testing.assert_close(own(batch_of(logs)), x, atol=1e-5, rtol=1e-5)
    assert own.out_dim == x.shape[1]


def test_context_features_follow_the_pair_features() -> None:
    logs = logs_of(17, 9)
    own = model(logs, context_features=True, num_layers=0)
    view = Blocks(logs, np.arange(len(logs)), block=5)
    examples = [view.example(number) for number in range(len(view))]
    batch = LinkCollator(logs, context_features=True)(examples)
    assert own.in_dim == len(FEATURES) + len(CONTEXT_FEATURES) + 4 * own.config.dim
    assert torch.equal(own(batch)[:, -len(CONTEXT_FEATURES) :], batch.pair_features[:, -len(CONTEXT_FEATURES) :])
    assert batch.pair_features[:, -len(CONTEXT_FEATURES) :].any(dim=0).sum() > 15
    plain = LinkCollator(logs)(examples)
    assert torch.equal(batch.pair_features[:, : -len(CONTEXT_FEATURES)], plain.pair_features)


def test_candidates_attend_to_each_other() -> None:
    """At first the attention changes nothing. Then each candidate depends on all others of the same message, and on no more."""
    logs = logs_of(17, 9)
    plain, own = model(logs), model(logs, attention_layers=2, attention_dim=8, attention_heads=2)
    batch = batch_of(logs)
    own.load_state_dict(plain.state_dict(), strict=False)
    assert own.candidate_attention is not None
    assert torch.equal(own.candidate_attention(own(batch), batch.candidates), plain(batch))
    torch.nn.init.normal_(own.candidate_attention.expand.weight)
    pairs = batch.pair_features.clone().requires_grad_()
    states = own.candidate_attention(own(replace(batch, pair_features=pairs)), batch.candidates)
    start, stop = batch.candidates.offsets[6:8].tolist()
    (moved,) = torch.autograd.grad(states[start].sum(), pairs)
    assert moved[start:stop].any(dim=1).all()
    assert not moved[:start].any()
    assert not moved[stop:].any()


def test_year_features_can_be_left_out() -> None:
    logs = logs_of(12)
    batch = batch_of(logs)
    later = batch.child_features.clone()
    later[:, 3] = 1
    with_years, without = model(logs), model(logs, years=False)
    assert not torch.equal(with_years(batch), with_years(replace(batch, child_features=later)))
    assert torch.equal(without(batch), without(replace(batch, child_features=later)))


def test_pair_does_not_depend_on_the_batch() -> None:
    logs = logs_of(30, 25)
    own = model(logs)
    whole = own(batch_of(logs))
    view = Blocks(logs, np.arange(len(logs)), block=5)
    first = 0
    for number, size in enumerate(view.costs.tolist()):
        alone = own(batch_of(logs, [number]))
        torch.testing.assert_close(alone, whole[first : first + size], atol=1e-6, rtol=1e-5)
        first += size


def test_batches_stay_within_a_log_and_a_window() -> None:
    logs = logs_of(12, 3, 20)
    for block in (1, 4, 100):
        batch = batch_of(logs, block=block)
        assert batch.source.tolist() == list(range(35))
        of_target = np.repeat(batch.source, batch.candidates.host_lengths)
        assert (logs.find_log(of_target) == logs.find_log(batch.key_source)).all()
        apart = of_target - batch.key_source
        assert apart.min() == 0
        assert apart.max() == INPUT.window
        assert (batch.is_self.numpy() == (apart == 0)).all()
    empty = LinkCollator(logs)([])
    assert empty.num_targets == empty.num_target_tokens == 0


def test_training_takes_messages_with_gold_links() -> None:
    logs = logs_of(50)
    view = Blocks(logs, logs.linked, block=4)
    batch = LinkCollator(logs)([view.example(number) for number in range(len(view))])
    assert batch.source.min() == 10
    near = {child for child, parent in logs.links.tolist() if child - parent <= INPUT.window}
    assert batch.source.tolist() == sorted(near)
    shares = torch.zeros(batch.num_targets).index_add_(
        0, torch.repeat_interleave(torch.arange(batch.num_targets), batch.candidates.lengths), batch.target_probability
    )
    torch.testing.assert_close(shares, torch.ones(batch.num_targets))


@pytest.mark.ill_typed
@pytest.mark.parametrize(
    "values", [{"hidden": 0}, {"dim": -1}, {"dropout": 1.0}, {"activation": "sign"}, {"years": 1}, {"attention_heads": 3}]
)
def test_invalid_sizes_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(RamifyError, match=next(iter(values))):
        FeatureModelConfig(**values)  # pyright: ignore[reportArgumentType]
