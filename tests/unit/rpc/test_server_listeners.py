"""Several addresses of one server: whose connection came where, and who cannot keep whom out."""

from __future__ import annotations

from fake_links import CLIENTS, Bench, FakeLink, listener

from semel.config import ListenerKind, NodeListener
from semel.sim.host import SimWorld
from semel.sim.loop import SimLoop, run

OUTSIDE = listener("OUTSIDE", ListenerKind.CLIENTS)
INSIDE = listener("INSIDE", ListenerKind.BROKERS)
CONTROLLER = listener("CONTROLLER", ListenerKind.CONTROLLERS)


async def bench_of(*listeners: NodeListener, **limits: int) -> Bench:
    bench = Bench(**limits)
    bench.server.listeners.clear()
    for one in listeners:
        await bench.server.listen(one)
    return bench


def closed(*links: FakeLink) -> list[bool]:
    return [link.is_closed for link in links]


async def test_a_connection_knows_its_listener_with_the_port_that_it_got() -> None:
    bench = await bench_of(OUTSIDE, INSIDE, CONTROLLER)
    for one in (CONTROLLER, OUTSIDE, INSIDE):
        connection = bench.connection(bench.connect(listener=one))
        assert connection.listener == one.name
        assert bench.server.listeners[one.name] == one.bound_to(9092)
    bench.server.close()


async def test_clients_do_not_keep_nodes_out() -> None:
    bench = await bench_of(OUTSIDE, INSIDE, CONTROLLER, connections=1)
    assert closed(bench.connect("10.0.0.1:1", OUTSIDE), bench.connect("10.0.0.2:1", OUTSIDE)) == [False, True]
    assert closed(bench.connect("10.0.0.3:1", INSIDE), bench.connect("10.0.0.4:1", CONTROLLER)) == [False, False]
    bench.server.close()


async def test_a_listener_that_clients_share_with_nodes_is_limited_as_theirs() -> None:
    bench = await bench_of(CLIENTS, CONTROLLER, connections=1)
    assert closed(bench.connect("10.0.0.1:1"), bench.connect("10.0.0.2:1")) == [False, True]
    assert not bench.connect("10.0.0.3:1", CONTROLLER).is_closed
    bench.server.close()


async def test_a_share_of_the_descriptors_is_kept_for_nodes() -> None:
    bench = await bench_of(OUTSIDE, INSIDE)
    bench.server._host.network.most_connections = 16  # type: ignore[misc]
    nodes = [bench.connect(f"10.0.1.{number}:1", INSIDE) for number in range(2)]
    clients = [bench.connect(f"10.0.0.{number}:1", OUTSIDE) for number in range(20)]
    # An idle client goes for each that comes, an idle node never.
    assert closed(*clients).count(False) == 12
    assert closed(*nodes) == [False, False]
    more = [bench.connect(f"10.0.1.{number}:1", INSIDE) for number in range(2, 4)]
    assert closed(*more) == [False, False]
    bench.server.close()


async def test_what_comes_before_the_gate_is_open_is_told_apart() -> None:
    bench = await bench_of(OUTSIDE, CONTROLLER)
    bench.server._closed_gates |= set(bench.server.listeners)
    early = bench.connect("10.0.0.1:1", CONTROLLER)
    assert not bench.server.connections
    bench.server.open_gate()
    assert bench.connection(early).listener == "CONTROLLER"
    bench.server.close()


def test_every_address_is_taken_and_given_back() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.server._host = SimWorld(loop, 1).host("node")
        for one in (OUTSIDE, CONTROLLER):
            await bench.server.listen(one)
        ports = [one.port for one in bench.server.listeners.values()]
        assert len(set(ports)) == len(ports)
        network = bench.server._host.network
        links = [await network.connect("node", bench.server.listeners[one.name].port) for one in (CONTROLLER, OUTSIDE)]
        assert {connection.listener for connection in bench.server.connections} == {"CONTROLLER", "OUTSIDE"}
        bench.server.close()
        for one in (OUTSIDE, CONTROLLER):
            await network.listen("node", bench.server.listeners[one.name].port, lambda link: None)
        for link in links:
            link.close()

    loop = SimLoop()
    run(scenario(), loop=loop)
