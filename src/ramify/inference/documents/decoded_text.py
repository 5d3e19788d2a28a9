"""The decoded path: sentences that are decoded from the vector of a longer node, level by level."""

from dataclasses import replace

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from ramify.batching.document_batch import NUM_MARKS
from ramify.batching.forest import Ints
from ramify.inference.documents.decoding import decode_children
from ramify.inference.documents.floors import FittedFloors
from ramify.inference.documents.measures import Advance, HeldOut, Measures, spread
from ramify.inference.documents.node_reconstruction import bank
from ramify.inference.documents.reconstruction import closed, decoded_sentences, sentence_measures_of

NOTHING = np.zeros(0, dtype=np.int64)


def decoded_sentence_measures(held: HeldOut, number: int, floors: FittedFloors, most: int, advance: Advance) -> Measures:
    """Tokens of at most `most` sentences, decoded from the vector of the node above them on a level, which is decoded into
    vectors of the levels between. Each is compared with the true sentence at its place.

    A sentence whose place, or that of a node above it, lies behind a predicted end has no token right. `others` of a measure
    hold the figure of the same sentences decoded from their own vectors.
    """
    chosen = np.flatnonzero(rows_above(held, np.arange(len(held.level(0))), number)[-1] >= 0)
    chosen = chosen[spread(len(chosen), most)]
    vectors = decoded_vectors(held, number, chosen)
    known = np.array([vector is not None for vector in vectors], dtype=bool)
    given = [vector for vector in vectors if vector is not None]
    size = held.encoded.vectors[0].shape[1]
    banks = None
    if held.banks is not None:
        # Nothing of the node from whose vector its sentences are decoded is in their bank.
        node = held.node_above(0, number)
        assert node is not None
        banks = held.banks.of_units(node, node[chosen[known]], held.level(0).tree[chosen[known]])
    rows = decode_children(held.task, 0, np.stack(given) if given else np.zeros((0, size), dtype=np.float32), None, banks)
    written = iter(rows)
    below = sentence_measures_of(held, floors, chosen, [closed(next(written)) if one else NOTHING for one in known])
    advance(len(chosen))
    from_own_vectors = sentence_measures_of(held, floors, chosen, decoded_sentences(held, chosen, lambda count: None))
    return {
        f"decoded_{name}": replace(measure, others=measure.others | {"own_vector": from_own_vectors[name].value})
        for name, measure in below.items()
    }


def rows_above(held: HeldOut, rows: Ints, level: int) -> list[Ints]:
    """Some of the lowest rows, and the rows above them up to a level; -1 if truncation leaves one out."""
    path = [rows]
    for number in range(level):
        path.append(np.where(path[-1] >= 0, held.parents[number][path[-1]], -1))
    return path


def decoded_vectors(held: HeldOut, number: int, rows: Ints) -> list[Float[NDArray, " dim"] | None]:
    """The vector of each of some of the lowest rows, as it comes out of the vector of the row above it on a level. None: the
    decoders end before its place."""
    task = held.task
    above = rows_above(held, rows, number)
    tops = np.unique(above[number])
    vectors = dict(zip(tops.tolist(), held.encoded.vectors[number][tops], strict=True))
    for level in range(number, 0, -1):
        children = np.unique(np.stack([above[level], above[level - 1]]), axis=1)
        decoded_rows = list(vectors)
        decoded = decode_children(
            task, level, np.stack(list(vectors.values())), bank(task, level, held.encoded.vectors[level - 1])
        )
        of_row = dict(zip(decoded_rows, decoded, strict=True))
        places = _places(held, level, np.unique(children[0]))
        vectors = {}
        for row, child in children.T.tolist():
            made, place = of_row.get(row), places[child]
            if made is not None and place < len(made.slots) and made.slots[place] >= NUM_MARKS:
                vectors[child] = made.states[place]
        if not vectors:
            break
    return [vectors.get(row) for row in rows.tolist()]


def _places(held: HeldOut, level: int, rows: Ints) -> dict[int, int]:
    """The place of each child in its row, by the child's number."""
    return {
        int(slot) - NUM_MARKS: place
        for slots in held.true_slots(level, rows)
        for place, slot in enumerate(slots.tolist())
        if slot >= NUM_MARKS
    }
