"""The meters of learning in reports: each loss beside the best constant prediction, and the last meters."""

from ramify.runs.curves import Metrics, dev_line
from ramify.runs.sections import Cell, Chart, Charts, Notice, Section, Table
from ramify.training.meters import CONSTANT, GRADIENT, QUEUE, RANK, SPREAD, VALUE, Meter, losses_of, problems, vectors_of


def learning(metrics: Metrics) -> list[Section]:
    """The section of the meters; none for a run without evaluations."""
    measured = [record for record in metrics if losses_of(record)]
    if not measured:
        return []
    last = measured[-1]
    losses, vectors = losses_of(last), vectors_of(last)
    charts = tuple(
        Chart(
            (
                dev_line(measured, "step", f"{VALUE}_{loss.name}"),
                dev_line(measured, "step", f"{CONSTANT}_{loss.name}", "best constant", "constant"),
            ),
            "updates",
            loss.name.replace("_", " "),
        )
        for loss in losses
    )
    tables = [_table("loss", losses, {VALUE: "on dev", CONSTANT: "best constant prediction", GRADIENT: "gradient"})]
    if vectors:
        headings = {RANK: "effective rank", SPREAD: "distance from the mean, share", QUEUE: "AUROC, new from queued"}
        tables.append(_table("vectors", vectors, headings))
    warnings = [Notice((f"Warning: {text}",)) for text in problems(last).values()]
    lead = (
        "Losses with the weights of training, beside those of the best prediction that is the same for all inputs; and the "
        "last measures of vectors."
    )
    legend = (("dev", "dev"), ("constant", "best constant prediction"))
    return [Section("Has it learned?", (*warnings, Charts(charts, legend), *tables), (lead,))]


def _table(name: str, meters: list[Meter], headings: dict[str, str]) -> Table:
    known = {kind: text for kind, text in headings.items() if any(kind in meter.values for meter in meters)}
    rows = [
        (
            Cell(meter.name.replace("_", " ")),
            *(Cell(f"{meter.values[kind]:.4g}" if kind in meter.values else "–") for kind in known),
        )
        for meter in meters
    ]
    return Table((name, *known.values()), tuple(rows))
