"""The blocking admin: every call of the asyncio one, waiting for its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from semel.client.admin import admin as asynchronous
from semel.sync.loop_thread import BlockingClient, blocking

if TYPE_CHECKING:
    from semel.client.option_types import AdminOptions


class Admin(BlockingClient[asynchronous.Admin]):
    def __init__(self, **settings: Unpack[AdminOptions]) -> None:
        super().__init__(lambda: asynchronous.Admin(**settings))

    async def _close(self, timeout_s: float | None) -> None:
        await self._core.close()

    abort_transaction = blocking(asynchronous.Admin.abort_transaction)
    commit_transaction = blocking(asynchronous.Admin.commit_transaction)
    alter_client_quotas = blocking(asynchronous.Admin.alter_client_quotas)
    alter_configs = blocking(asynchronous.Admin.alter_configs)
    alter_group_offsets = blocking(asynchronous.Admin.alter_group_offsets)
    alter_partition_reassignments = blocking(asynchronous.Admin.alter_partition_reassignments)
    alter_user_scram_credentials = blocking(asynchronous.Admin.alter_user_scram_credentials)
    create_acls = blocking(asynchronous.Admin.create_acls)
    create_partitions = blocking(asynchronous.Admin.create_partitions)
    create_topics = blocking(asynchronous.Admin.create_topics)
    delete_acls = blocking(asynchronous.Admin.delete_acls)
    delete_group_offsets = blocking(asynchronous.Admin.delete_group_offsets)
    delete_groups = blocking(asynchronous.Admin.delete_groups)
    delete_records = blocking(asynchronous.Admin.delete_records)
    delete_topics = blocking(asynchronous.Admin.delete_topics)
    describe_acls = blocking(asynchronous.Admin.describe_acls)
    describe_client_quotas = blocking(asynchronous.Admin.describe_client_quotas)
    describe_cluster = blocking(asynchronous.Admin.describe_cluster)
    describe_configs = blocking(asynchronous.Admin.describe_configs)
    describe_groups = blocking(asynchronous.Admin.describe_groups)
    describe_log_dirs = blocking(asynchronous.Admin.describe_log_dirs)
    describe_producers = blocking(asynchronous.Admin.describe_producers)
    describe_quorum = blocking(asynchronous.Admin.describe_quorum)
    describe_topics = blocking(asynchronous.Admin.describe_topics)
    describe_transactions = blocking(asynchronous.Admin.describe_transactions)
    describe_user_scram_credentials = blocking(asynchronous.Admin.describe_user_scram_credentials)
    describe_versions = blocking(asynchronous.Admin.describe_versions)
    elect_leaders = blocking(asynchronous.Admin.elect_leaders)
    fence_producers = blocking(asynchronous.Admin.fence_producers)
    find_open_transactions = blocking(asynchronous.Admin.find_open_transactions)
    group_lag = blocking(asynchronous.Admin.group_lag)
    list_group_offsets = blocking(asynchronous.Admin.list_group_offsets)
    list_groups = blocking(asynchronous.Admin.list_groups)
    list_offsets = blocking(asynchronous.Admin.list_offsets)
    list_partition_reassignments = blocking(asynchronous.Admin.list_partition_reassignments)
    list_topics = blocking(asynchronous.Admin.list_topics)
    list_transactions = blocking(asynchronous.Admin.list_transactions)
    remove_members = blocking(asynchronous.Admin.remove_members)
