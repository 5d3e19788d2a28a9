"""A disentangled log as a table, with one row per message."""

import pyarrow as pa

from ramify.disentangle.inference.result import Disentangled, conversation_id

MESSAGES = pa.schema(
    [
        ("log", pa.string()),
        ("id", pa.string()),
        # The id of the likeliest parent; null for a message that starts a conversation.
        ("parent", pa.string()),
        # The ids of further parents.
        ("also", pa.list_(pa.string())),
        # Of this parent, or of the start of a conversation.
        ("probability", pa.float64()),
        # Unique among all logs: the id of its tree in JSON lines.
        ("conversation", pa.string()),
        ("author", pa.string()),
        ("time", pa.float64()),
        ("kind", pa.string()),
        ("text", pa.large_string()),
    ]
)


def rows_of(disentangled: Disentangled) -> pa.RecordBatch:
    """The messages of a log, in its order. `data build` reads such rows as a table of posts, one tree per conversation."""
    log, nodes = disentangled.tree, disentangled.tree.nodes
    parents = [[nodes[parent].id for parent in node.parents or ()] for node in nodes]
    columns = {
        "log": [log.id] * len(nodes),
        "id": [node.id for node in nodes],
        "parent": [ids[0] if ids else None for ids in parents],
        "also": [ids[1:] for ids in parents],
        "probability": [round(float(probability), 4) for probability in disentangled.probability],
        "conversation": [conversation_id(log, number) for number in disentangled.conversation.tolist()],
        "author": [node.author for node in nodes],
        "time": [node.time for node in nodes],
        "kind": [node.kind for node in nodes],
        "text": [node.text for node in nodes],
    }
    return pa.RecordBatch.from_pydict(columns, schema=MESSAGES)
