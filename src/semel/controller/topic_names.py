"""Whether a topic may have a name beside the topics that are there."""

from collections.abc import Iterable

from semel.wire.topic_names import wrong_with_characters


def wrong_with_name(name: str, others: Iterable[str]) -> str | None:
    """Why a topic cannot have this name; None when it can."""
    wrong = wrong_with_characters(name)
    if wrong is not None:
        return wrong
    folded = name.replace(".", "_")
    for other in others:
        if other != name and other.replace(".", "_") == folded:
            return f"'.' and '_' count as the same in names of metrics, so {name!r} collides with the topic {other!r}"
    return None
