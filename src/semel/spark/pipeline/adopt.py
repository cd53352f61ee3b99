"""What `semel pipeline adopt` will do, in words, for the person who has to say yes to it."""

from __future__ import annotations

from collections.abc import Iterator

from semel.spark.pipeline.status import Status


def what_adopting_does(status: Status, batch_id: int | None) -> Iterator[str]:
    """To be read before it is done."""
    number = status.completed if batch_id is None else batch_id
    before = "none" if status.marker is None else f"batch {status.marker.number}"
    other = "" if status.marker is None or status.marker.query_id == status.query_id else status.marker.query_id
    whose = f"app id {status.app_id}" if status.app_id else f"query {status.query_id}"
    yield f"The marker of {whose} is: {before}{f' of another query, {other}' if other else ''}."
    yield f"The checkpoint {status.checkpoint} {_checkpoint_told(status)}."
    after = "removed" if number < 0 else f"set to batch {number}"
    yield f"The marker will be {after}, so that batch {number + 1} is the next one that is published."
    if other:
        yield (
            f"What that query has published stays. What batches from {number + 1} on make of the same records will be "
            "written again."
        )
    elif status.marker is not None and number < status.marker.number:
        yield (
            f"Batches {number + 1} to {status.marker.number} were published before: "
            "what they have written will be written again."
        )
    elif status.marker is not None and number > status.marker.number:
        yield (
            f"Batches {status.marker.number + 1} to {number} count as published: "
            "what they should have written and have not is lost."
        )
    if status.marker is None and number >= 0:
        yield f"Batches up to {number} count as published: by another sink, or another cluster."
    yield "Every other run that uses this checkpoint is fenced."


def _checkpoint_told(status: Status) -> str:
    done = (
        "has no batch that is done" if status.completed < 0 else f"has batches that are done up to {status.completed}"
    )
    return done if status.planned == status.completed else f"{done}, and has begun batch {status.planned}"
