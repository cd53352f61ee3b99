"""The admin on our broker in the simulated world, behind the fault proxy: faults are scripted, time is virtual."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from client_world import ClientWorld
from semel.client.admin.admin import Admin
from semel.sim.attack.fault_policy import Blow, Fault, ScriptedFaults

BETWEEN_ATTEMPTS_S = 0.05
"""Longer than a request takes here, shorter than the pause before the next one."""

Test = Callable[..., Coroutine[Any, Any, None]]


def admin_of(world: ClientWorld, **settings: Any) -> Admin:
    return Admin(host=world.host("admin"), bootstrap_servers=world.address, **settings)


def lost(*apis: str) -> dict[tuple[str, int], Blow]:
    """The broker serves the first request of each of these APIs, and its answer is lost."""
    return {(api, 1): Blow(Fault.CUT_AFTER) for api in apis}


def requests(world: ClientWorld, api: str) -> int:
    """How many of them the proxy has seen."""
    assert isinstance(world.faults, ScriptedFaults)
    return world.faults.seen[api]


def on_broker(
    faults: Mapping[tuple[str, int], Blow] | None = None, settings: Mapping[str, str] | None = None
) -> Callable[[Test], Callable[..., None]]:
    """Runs `async def test(world, admin, ...)`; the admin is started."""

    def decorate(test: Test) -> Callable[..., None]:
        def in_virtual_time(**arguments: Any) -> None:
            async def scenario(world: ClientWorld) -> None:
                async with admin_of(world) as admin:
                    await test(world, admin, **arguments)

            ClientWorld(1, ScriptedFaults(faults or {}), settings=settings).run(scenario)

        in_virtual_time.__name__ = test.__name__
        in_virtual_time.__doc__ = test.__doc__
        signature = inspect.signature(test)
        kept = list(signature.parameters.values())[2:]
        in_virtual_time.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return in_virtual_time

    return decorate
