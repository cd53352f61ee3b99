"""Membership of a consumer group: `api.py` says what it promises, `new_membership` makes one of either protocol.

Each protocol is loaded when it is used: who only reads what members say of themselves needs neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.client.consumer.membership.api import Membership, Owner
from semel.client.errors import IllegalState

if TYPE_CHECKING:
    from semel.client.cluster import Cluster
    from semel.client.consumer.settings import ConsumerSettings
    from semel.client.coordinators import Coordinators

__all__ = ["Membership", "Owner", "new_membership"]


def new_membership(
    cluster: Cluster, coordinators: Coordinators, settings: ConsumerSettings, owner: Owner
) -> Membership:
    """Raises BadSetting for assignors that there are not. Nothing is asked before `subscription_changed`."""
    if not settings.group_id:
        raise IllegalState("to subscribe, set group_id; without a group, assign partitions instead")
    if settings.group_protocol == "consumer":
        from semel.client.consumer.membership.modern import ModernMembership

        return ModernMembership(cluster, coordinators, settings, owner, settings.group_id)
    from semel.client.consumer.membership.classic import ClassicMembership

    return ClassicMembership(cluster, coordinators, settings, owner, settings.group_id)
