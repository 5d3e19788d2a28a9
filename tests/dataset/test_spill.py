from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from ramify.dataset.spill import Spill


def batches(hashes, size=100):
    for start in range(0, len(hashes), size):
        part = hashes[start : start + size]
        yield pa.RecordBatch.from_pydict({"hash": part, "place": np.arange(start, start + len(part))})


@pytest.mark.parametrize("part_bytes", [1 << 20, 10_000, 500])
def test_parts_come_in_order_and_keep_equal_hashes_together(tmp_path, part_bytes):
    hashes = np.random.default_rng(0).integers(0, 2**64, 200, dtype=np.uint64).repeat(10)
    np.random.default_rng(1).shuffle(hashes)
    spill = Spill(tmp_path / "spill", part_bytes)
    for batch in batches(hashes):
        spill.add(batch)
    parts = list(spill.parts())
    assert sum(part.num_rows for part in parts) == len(hashes)
    ends = [(part["hash"].to_numpy().min(), part["hash"].to_numpy().max()) for part in parts]
    assert all(before[1] < after[0] for before, after in pairwise(ends))
    for part in parts:
        order = np.argsort(part["hash"].to_numpy(), kind="stable")
        places = part["place"].to_numpy()[order]
        same = np.diff(part["hash"].to_numpy()[order]) == 0
        assert (np.diff(places)[same] > 0).all()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert (len(parts) > 1) == (part_bytes < 1 << 20)


def test_one_hash_is_one_part(tmp_path):
    spill = Spill(tmp_path / "spill", 1_000)
    for batch in batches(np.full(1_000, 7, dtype=np.uint64)):
        spill.add(batch)
    assert [part.num_rows for part in spill.parts()] == [1_000]


def test_empty_spill(tmp_path):
    assert list(Spill(tmp_path, 10).parts()) == []
