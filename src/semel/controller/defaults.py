"""What a topic is like when nobody says: on a node alone one replica; in a cluster of three or more, three of them, of
which two must be in sync. Settings that were given on purpose win."""

from __future__ import annotations

from semel.config import BrokerConfig, ConfigSource
from semel.controller.image import MetadataImage

SAFE_REPLICAS = 3
SAFE_IN_SYNC = 2
FACTOR, MIN_INSYNC = "default.replication.factor", "min.insync.replicas"


def can_be_safe(image: MetadataImage, config: BrokerConfig) -> bool:
    """Whether there are enough brokers for three replicas. Those that are down at the moment count: they come back."""
    return not config.layout.is_alone and len(image.brokers) >= SAFE_REPLICAS


def replication_factor(image: MetadataImage, config: BrokerConfig) -> int:
    if config.source(FACTOR) is ConfigSource.DEFAULT and can_be_safe(image, config):
        return SAFE_REPLICAS
    return config.int(FACTOR)


def min_insync_replicas(image: MetadataImage, config: BrokerConfig, replicas: int) -> int | None:
    """What a topic with so many replicas sets for itself; None where the settings of the node are to count."""
    if config.layout.is_alone or replicas < SAFE_REPLICAS or _is_min_insync_given(image, config):
        return None
    return SAFE_IN_SYNC


def _is_min_insync_given(image: MetadataImage, config: BrokerConfig) -> bool:
    """The controller itself sets the default for the whole cluster where eligible leader replicas are kept, so that all
    nodes go by the same: that was nobody's purpose."""
    default = 1
    for source, layer in config.layers():
        if MIN_INSYNC in layer:
            is_own = image.has_elr and source is ConfigSource.DYNAMIC_DEFAULT_BROKER and layer[MIN_INSYNC] == default
            if not is_own:
                return True
    return False
