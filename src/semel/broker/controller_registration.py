"""A controller makes itself known to the active one: where it is, and what it knows (KIP-919)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from semel.broker.node_info import NodeInfo
from semel.broker.remote_controller import RemoteController
from semel.config import ListenerKind, NodeListener
from semel.config.listeners import PROTOCOLS
from semel.controller.levels import CONTROLLER_REGISTRATION, SUPPORTED_FEATURES
from semel.controller.metadata import Metadata
from semel.host.complaints import Complaints
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.controller_registration import (
    ControllerFeature,
    ControllerListener,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

logger = logging.getLogger("semel.broker")

_RETRY_S = 1.0


class ControllerRegistration:
    """From `start` to `close`. It ends when the image has this start of the controller."""

    def __init__(
        self,
        node: NodeInfo,
        metadata: Metadata,
        channel: RemoteController,
        bound: Mapping[str, NodeListener],
        incarnation_id: bytes,
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self._node = node
        self._metadata = metadata
        self._channel = channel
        self._bound = bound
        self._incarnation_id = incarnation_id
        self._on_broken = on_broken
        self._task: asyncio.Task[None] | None = None
        self._complaints = Complaints(logger)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._register())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_broken(error)

    async def _register(self) -> None:
        metadata = self._metadata
        await metadata.until(lambda: metadata.committed.metadata_version >= CONTROLLER_REGISTRATION)
        while not self._is_known():
            try:
                answer = await self._channel.ask(self._request(), ControllerRegistrationResponse, at_most=0)
                problem = ErrorCode(answer.error_code).name if answer.error_code else ""
            except Refused as refusal:
                problem = refusal.text
            if not problem:
                return
            self._complaints.say("register", logging.WARNING, "this controller cannot register: %s", problem)
            await asyncio.sleep(_RETRY_S)

    def _is_known(self) -> bool:
        known = self._metadata.committed.controllers.get(self._node.node_id)
        return known is not None and known.incarnation_id == self._incarnation_id

    def _request(self) -> ControllerRegistrationRequest:
        return ControllerRegistrationRequest(
            controller_id=self._node.node_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                ControllerListener(
                    name=one.name,
                    host=one.advertised_host or one.host,
                    port=one.advertised_port,
                    security_protocol=PROTOCOLS[one.protocol],
                )
                for one in self._bound.values()
                if ListenerKind.CONTROLLERS in one.kind
            ],
            features=[
                ControllerFeature(name=name, min_supported_version=least, max_supported_version=most)
                for name, (least, most) in SUPPORTED_FEATURES.items()
            ],
        )

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
