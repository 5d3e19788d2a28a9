"""The check of a GPU: its file, its count of operations, its tests, and the rows of results that it becomes."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.flop_counter import FlopCounterMode

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

sys.path.insert(0, str(BENCHMARKS))
try:
    import cost
    import gpu
    import rows
finally:
    sys.path.remove(str(BENCHMARKS))

MEASURES = {
    "step time": "ms",
    "operations per step": "10⁹",
    "share of peak": "%",
    "peak memory": "MiB",
    "tokens per second": "tokens/s",
}
FAMILIES = {"tree-mlm", "bert", "xlnet", "agent", "transformer", "seq2seq", "elmo", "links", "embed tree-mlm", "embed bert"}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    # For torch, an LSTM in half precision is a matter of the processor, and for oneDNN, of this variable, too.
    if os.environ.get("ONEDNN_MAX_CPU_ISA") in ("SSE41", "AVX2"):
        pytest.skip("oneDNN lacks an LSTM in half precision")
    out = tmp_path_factory.mktemp("gpu") / "gpu.json"
    assert gpu.check(out, tiny=True, steps=1, warm_up=0) == 0
    return json.loads(out.read_text("utf-8"))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    gpu.write_data(folder, tiny=True)
    return folder


def test_every_family_has_every_measure_in_its_unit(record):
    assert record["failed"] == []
    found = {(row["family"], row["measure"]): row for row in record["rows"]}
    assert found.keys() == {(family, measure) for family in FAMILIES for measure in MEASURES}
    for (_, measure), row in found.items():
        assert row["unit"] == MEASURES[measure]
        assert row["size"] == "tiny"
        if measure in ("share of peak", "peak memory"):  # a CPU has neither
            assert row["value"] is row["range"] is None
        else:
            assert 0 < row["range"][0] <= row["value"] <= row["range"][1]


def test_the_file_names_device_software_and_tests(record):
    assert record["device"]["name"]
    assert record["device"]["driver"] is None
    assert record["torch"] == torch.__version__
    assert {"commit", "date", "command"} <= record.keys()
    assert record["tests"] == {"outcome": "not run", "reason": "--tiny measures the CPU"}


def test_every_family_has_two_sizes_for_devices():
    assert all(case.sizes.keys() == {"tiny", "small", "base"} for case in gpu.CASES.values())


@pytest.mark.parametrize(("name", "context"), [("bert", False), ("tree-mlm", True)])
def test_operations_equal_those_that_the_sizes_give(monkeypatch, tmp_path, data, name, context):
    """`cost.operations` counts a batch by formula. It leaves out padding and small heads."""
    case = gpu.CASES[name]
    run = gpu.prepared(case, "tiny", data, tmp_path)
    model = run.task.backbone.config
    monkeypatch.setattr(cost, "VOCABULARY", model.vocab_size)
    (step,) = gpu.training_steps(run, tmp_path, 1, 0, CPU)
    stage = run.stage(0)
    numbers = next(iter(stage.sampler(run.run.seed, 1)))
    batch = stage.collator([stage.view.example(int(number), 0) for number in numbers])
    batch = run.task.corrupt(batch, torch.Generator().manual_seed(0))
    layers = int(case.sizes["tiny"]["model.num_layers" if name == "bert" else "model.encoder_layers"])
    expected = 2 * 3 * cost.operations(batch, model.dim, layers, context, additions=context)
    assert step.tokens == batch.num_target_tokens
    assert step.operations == pytest.approx(expected, rel=0.05)


def test_a_grouped_convolution_is_counted_as_forward():
    convolution = nn.Conv2d(8, 8, (3, 1), groups=8)
    x = torch.randn(1, 8, 20, 1, requires_grad=True)
    with gpu.counter() as counter:
        out = convolution(x)
        forward = counter.get_total_flops()
        out.sum().backward()
    assert forward == 2 * 8 * 3 * 18
    assert counter.get_total_flops() == 3 * forward


def test_an_lstm_kernel_counts_as_its_products():
    """On a CPU, torch computes packed rows by products, which it counts."""
    lstm = nn.LSTM(5, 7, bidirectional=True)
    packed = pack_sequence([torch.randn(4, 5), torch.randn(3, 5)])
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        lstm(packed)
    weights = [tuple(weight.shape) for weight in lstm.parameters()]
    assert gpu.FORMULAS[torch.ops.aten._cudnn_rnn]((7, 5), weights) == counter.get_total_flops()
    assert gpu.FORMULAS[torch.ops.aten._cudnn_rnn_backward]((7, 5), weights) == 2 * counter.get_total_flops()


def test_a_family_that_fails_is_reported_and_the_others_run(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "CASES", {name: gpu.CASES[name] for name in ("bert", "links")})
    monkeypatch.setattr(gpu, "EMBEDDERS", ())
    monkeypatch.setitem(gpu.CASES["bert"].sizes, "tiny", {"model.dim": "-1"})
    assert gpu.check(tmp_path / "gpu.json", tiny=True, steps=1, warm_up=0) == 1
    record = json.loads((tmp_path / "gpu.json").read_text("utf-8"))
    (failed,) = record["failed"]
    assert (failed["family"], failed["size"]) == ("bert", "tiny")
    assert "model.dim" in failed["error"]
    assert {row["family"] for row in record["rows"]} == {"links"}


def test_outcome_of_marked_tests(tmp_path):
    # The mark is put together, so that this file is none of `marked_files`.
    mark = "@pytest.mark." + "cuda"
    names = {
        f"{mark}\ndef test_one()": "pass",
        f"{mark}\ndef test_two()": "assert 1 == 2",
        "def test_unmarked()": "assert False",
    }
    file = tmp_path / "test_some.py"
    file.write_text("import pytest\n\n" + "\n\n".join(f"{name}: {body}" for name, body in names.items()))
    outcome = gpu.marked_tests([file])
    assert (outcome["outcome"], outcome["passed"], outcome["failed"], outcome["skipped"]) == ("failed", 1, 1, 0)
    assert "assert 1 == 2" in outcome["reason"]


def test_without_pytest_the_tests_are_not_run(monkeypatch):
    monkeypatch.setattr(gpu, "find_spec", lambda name: None)
    outcome = gpu.marked_tests([])
    assert outcome == {"outcome": "not run", "reason": "pytest is not installed, hypothesis is not installed"}


def test_marked_files_are_those_of_cuda():
    assert {file.name for file in gpu.marked_files()} == {"test_cuda.py", "test_attention.py"}


@pytest.mark.parametrize(
    ("version", "message"), [(None, r"is built without CUDA.* Install a build with CUDA"), ("12.8", "finds no device")]
)
def test_without_a_device_the_reason_is_given(monkeypatch, version, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", version)
    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    with pytest.raises(SystemExit, match=message):
        gpu.main()


@pytest.mark.parametrize(
    ("name", "rate"), [("NVIDIA H100 80GB HBM3", 989.4e12), ("NVIDIA H100 PCIe", 756.5e12), ("NVIDIA L40", None)]
)
def test_peak_of_a_device(monkeypatch, name, rate):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert gpu.peak_rate(torch.device("cuda")) == rate


# --- results ---------------------------------------------------------------------------------------------------------------


def test_figures_become_rows_of_results(record, tmp_path):
    machines = {"G": {"processor": record["device"]["name"]}}
    kept = gpu.kept_rows(record, machines, commit="0123456+")
    assert len(kept) == len(FAMILIES) * 3
    file = tmp_path / "gpu.jsonl"
    rows.replace_rows(file, kept)
    assert rows.read(file) == kept
    row = next(row for row in kept if row.name == "gpu.g_embed_bert_tiny.step_time")
    assert (row.table, row.row, row.column, row.unit) == ("gpu", "G: embed bert, tiny", "step time", "ms")
    assert (row.hardware, row.commit, row.note) == ("G", "0123456", "with changes that are not committed")


def test_unknown_machine_or_commit_is_refused(record):
    with pytest.raises(ValueError, match=r"machines\.toml has no machine with processor = "):
        gpu.kept_rows(record, {})
    with pytest.raises(ValueError, match="Add --commit"):
        gpu.kept_rows(record | {"commit": ""}, {"G": {"processor": record["device"]["name"]}})
