"""Follows the metadata log of the cluster: finds its leader, fetches, cuts what differs, appends, loads snapshots.

One request is under way at a time. After each answer the owner is told how far the log is committed, and its turn comes
before the next request: so it is never more than one answer behind. A leader that does not answer is asked in turn with
the other controllers, one of which may know of a new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol, cast

from semel.host.api import Disk
from semel.host.complaints import Complaints
from semel.host.descriptors import is_short
from semel.log.disk_trouble import NO_SPACE
from semel.log.errors import BrokenLog, Refused
from semel.log.types import Epoch
from semel.peer.backoff import Backoff
from semel.peer.caller import PeerCaller
from semel.peer.calls import HostPort
from semel.peer.errors import PeerError
from semel.quorum.leadership import Leadership
from semel.quorum.metadata_topic import NO_LEADER
from semel.quorum.owner import Owner
from semel.quorum.raft_messages import (
    FETCH_WAIT_MS,
    fetch_request,
    fetched_partition,
    snapshot_piece,
    snapshot_request,
    told_leader,
)
from semel.quorum.replicated_log import ForeignBatches, ReplicatedLog
from semel.quorum.snapshot_download import SnapshotDownload
from semel.quorum.snapshot_files import SnapshotId
from semel.quorum.voters import ReplicaKey
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import FetchResponse, FetchResponsePartition
from semel.wire.spec.fetch_snapshot import FetchSnapshotResponse, FetchSnapshotResponsePartition

logger = logging.getLogger("semel.quorum")

REQUEST_TIMEOUT_S = 2.0
_FETCH_VERSIONS = (13, 18)
_TEXT = "cannot follow the metadata log: %s"


class WrongCluster(Exception):
    """The controllers belong to another cluster than this node."""


class Standing(Protocol):
    """What the replica is among the others, for which the log is followed."""

    async def may_fetch(self) -> None:
        """Returns when it follows somebody, or looks for whom to follow."""

    def learn(self, epoch: Epoch, leader_id: int, endpoints: Mapping[int, HostPort]) -> bool:
        """An answer says who leads. Whether that is news."""

    def fetched(self, epoch: Epoch) -> None:
        """The leader of this epoch has answered."""

    async def flushed(self) -> None:
        """Returns when what was fetched is as durable as it has to be before the next fetch tells of it."""

    def cutting(self) -> AbstractContextManager[None]:
        """While the log is no whole one."""


class Observer:
    """`run` until it is cancelled. It ends by itself with WrongCluster, or with what makes the node's log unusable."""

    def __init__(
        self,
        disk: Disk,
        cluster_id: str,
        key: ReplicaKey,
        log: ReplicatedLog,
        leadership: Leadership,
        calls: PeerCaller,
        owner: Owner,
        standing: Standing,
        backoff: Backoff,
    ) -> None:
        self.log = log
        self.reading = asyncio.Lock()
        """Held while the owner has its turn, and while the log is cut."""
        self._disk = disk
        self._cluster_id = cluster_id
        self._key = key
        self._leadership = leadership
        self._calls = calls
        self._owner = owner
        self._standing = standing
        self._backoff = backoff
        self._failures = 0
        self._complaints = Complaints(logger)

    async def run(self) -> None:
        while True:
            await self._standing.may_fetch()
            asked = self._leadership.to_ask()
            try:
                is_of_use = asked != NO_LEADER and await self._fetch(asked)
            except PeerError as error:
                self._complaints.say("unreachable", logging.WARNING, _TEXT, error)
                self._leadership.did_not_answer(asked)
                is_of_use = False
            except ForeignBatches as error:
                self._complaints.say("foreign", logging.ERROR, _TEXT, error)
                is_of_use = False
            except (Refused, OSError) as error:
                # A disk without room, or a process without descriptors, has both again some time: what was not
                # written is asked for once more.
                cause = error.__cause__ if isinstance(error, Refused) else error
                if not isinstance(cause, OSError) or (cause.errno not in NO_SPACE and not is_short(cause)):
                    raise
                self._complaints.say("disk", logging.ERROR, _TEXT, error)
                is_of_use = False
            if is_of_use:
                self._failures = 0
            else:
                self._failures += 1
                await asyncio.sleep(self._backoff.delay_s(self._failures))

    async def _fetch(self, asked: int) -> bool:
        """Whether it was answered in a way that the next one need not wait for."""
        log = self.log
        offset, last_epoch, epoch = log.end_offset, log.end_epoch, max(self._leadership.epoch, log.end_epoch)
        request = fetch_request(
            cluster_id=self._cluster_id,
            replica_id=self._key.node_id,
            directory_id=self._key.directory_id,
            epoch=epoch,
            offset=offset,
            last_epoch=last_epoch,
            high_watermark=log.committed_end,
        )
        timeout_s = FETCH_WAIT_MS / 1000 + REQUEST_TIMEOUT_S
        least, most = _FETCH_VERSIONS
        answer = await self._calls.call(
            asked, request, FetchResponse, timeout_s=timeout_s, at_least=least, at_most=most
        )
        self._check_cluster(answer.error_code)
        partition = fetched_partition(answer)
        if answer.error_code or partition is None:
            self._complaints.say("answer", logging.WARNING, _TEXT, f"node {asked} answers {answer.error_code}")
            return False
        self._leadership.answered(asked)
        is_news = self._standing.learn(*told_leader(partition.current_leader, answer.node_endpoints))
        if partition.error_code:
            return is_news  # there is another leader, or another epoch: it is asked at once
        return await self._take(asked, epoch, partition) or is_news

    def _check_cluster(self, code: int) -> None:
        if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            raise WrongCluster(f"the controllers are not of cluster {self._cluster_id}, to which this node belongs")

    def _follows(self, asked: int, epoch: Epoch) -> bool:
        return asked == self._leadership.leader_id and epoch == self._leadership.epoch

    async def _take(self, asked: int, epoch: Epoch, partition: FetchResponsePartition) -> bool:
        if not self._follows(asked, epoch):
            # It may lead, and we have asked before we knew: what it has said it will say again.
            return asked == self._leadership.leader_id
        self._standing.fetched(epoch)
        log = self.log
        if partition.snapshot_id is not None and partition.snapshot_id.end_offset >= 0:
            wanted = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
            return await self._load(asked, wanted)
        if partition.diverging_epoch is not None and partition.diverging_epoch.epoch >= 0:
            async with self.reading:
                if self._follows(asked, epoch):
                    with self._standing.cutting():
                        await log.truncate(partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset)
            return True
        records = partition.records
        if records:
            log.append(memoryview(cast(bytes, records)), epoch)
        if partition.high_watermark >= 0 and log.commit(partition.high_watermark):
            async with self.reading:
                await self._owner.committed_further()
        await self._standing.flushed()
        return True

    # -- snapshots

    async def _load(self, asked: int, snapshot: SnapshotId) -> bool:
        if snapshot.end_offset < max(self.log.snapshot.end_offset, self.log.committed_end):
            raise BrokenLog(
                f"{self.log.log.directory}: the leader offers the snapshot {snapshot.name}, and more than that was "
                "committed: it has lost what it had acknowledged"
            )
        logger.info("loading the metadata snapshot at offset %d from node %d", snapshot.end_offset, asked)
        epoch = self._leadership.epoch
        download = SnapshotDownload(self._disk, self.log.log.directory, snapshot)
        try:
            if not await self._download(asked, download):
                return False
            await download.complete()
        finally:
            download.close()
        async with self.reading:
            if not self._follows(asked, epoch):
                return False
            old = self.log.snapshot
            with self._standing.cutting():
                await self.log.restart_at(snapshot)
                await self._owner.loaded(snapshot)
        if old.end_offset and old != snapshot and self._disk.exists(path := f"{self.log.log.directory}/{old.name}"):
            self._disk.remove(path)
        self.log.commit(snapshot.end_offset)
        return True

    async def _download(self, asked: int, download: SnapshotDownload) -> bool:
        epoch = self._leadership.epoch
        while True:
            piece = await self._piece(asked, download, epoch)
            if piece is None or not piece.unaligned_records:
                return False
            download.write(cast(memoryview, piece.unaligned_records))
            if download.position >= piece.size:
                return True

    async def _piece(
        self, asked: int, download: SnapshotDownload, epoch: Epoch
    ) -> FetchSnapshotResponsePartition | None:
        """The next piece; None when this snapshot is not to be had there any more."""
        request = snapshot_request(
            cluster_id=self._cluster_id,
            replica_id=self._key.node_id,
            directory_id=self._key.directory_id,
            epoch=epoch,
            snapshot=download.snapshot,
            position=download.position,
        )
        answer = await self._calls.call(asked, request, FetchSnapshotResponse, timeout_s=REQUEST_TIMEOUT_S, at_most=1)
        self._check_cluster(answer.error_code)
        piece = snapshot_piece(answer)
        if answer.error_code or piece is None:
            return None
        self._standing.learn(*told_leader(piece.current_leader, answer.node_endpoints))
        is_same = self._follows(asked, epoch) and piece.position == download.position
        if is_same and not piece.error_code:
            self._standing.fetched(epoch)
        return piece if is_same and not piece.error_code else None
