"""The settings of one group: what IncrementalAlterConfigs accepts for a resource of type GROUP (32).

Each takes its default from a setting of the node, which also says between which bounds a group may choose.
"""

from __future__ import annotations

from semel.config.broker_settings import BROKER_SETTINGS
from semel.config.settings import Setting, Synonym, by_name

SESSION_TIMEOUT, HEARTBEAT_INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"


def _inherits(name: str, sentence: str) -> Setting:
    parent = BROKER_SETTINGS[f"group.{name}"]
    return parent._replace(
        name=name, sentence=sentence, needs_restart=False, synonyms=(Synonym(parent.name),), kafka_default=None
    )


GROUP_SETTINGS = by_name(
    [
        _inherits(SESSION_TIMEOUT, "A member of this KIP-848 group that is silent for this long is removed."),
        _inherits(HEARTBEAT_INTERVAL, "How often members of this KIP-848 group are told to send a heartbeat."),
        _inherits(
            ASSIGNMENT_INTERVAL,
            "Accepted and without effect: members are assigned anew with the heartbeat that changes something.",
        ),
    ]
)
