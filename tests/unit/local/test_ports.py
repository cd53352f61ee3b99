"""Ports that are held: nobody else's, and the node's own."""

from __future__ import annotations

import socket

import pytest

from semel.local.ports import HOST, HeldPorts


def test_a_node_can_listen_on_a_held_port_and_nobody_else() -> None:
    ports = HeldPorts()
    (port,) = ports.take(1)
    try:
        with socket.socket() as other, pytest.raises(OSError):
            other.bind((HOST, port))
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect((HOST, port))
        with socket.socket() as node:
            node.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            node.bind((HOST, port))
            node.listen()
            socket.create_connection((HOST, port)).close()
    finally:
        ports.close()


def test_ports_are_outside_of_those_for_outgoing_connections() -> None:
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first = int(file.read().split()[0])
    ports = HeldPorts()
    taken = ports.take(20)
    ports.close()
    assert len(set(taken)) == 20
    assert max(taken) < first


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        listening.listen()
        port = listening.getsockname()[1]
        ports = HeldPorts()
        with pytest.raises(OSError, match=f"port {port} .* in use"):
            ports.hold([port])
        ports.close()
