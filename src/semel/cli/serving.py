"""What `semel serve` does: one node in this process, until SIGTERM or SIGINT. SIGHUP opens log files anew."""

from __future__ import annotations

import argparse
import asyncio
import errno
import gc
import ipaddress
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from semel.broker.broker import Broker
from semel.broker.identity import WrongDirectory
from semel.broker.lifecycle import CannotJoin
from semel.cli.console_beside import NOT_INSTALLED, ConsoleBeside, is_installed
from semel.cli.failures import Exit
from semel.cli.log_lines import log_to_stderr
from semel.cli.node_options import node_config
from semel.config import BrokerConfig, ConfigError, ListenerKind, NodeListener, Role
from semel.config.listeners import PLAINTEXT, parse_address, spelled
from semel.host.api import AlreadyLocked
from semel.host.descriptors import raise_limit
from semel.host.loop_turns import LoopTurns
from semel.host.real import real_host
from semel.log.errors import BrokenLog
from semel.quorum.observer import WrongCluster

if TYPE_CHECKING:  # loaded only where it is asked for
    from semel.broker.monitoring import Monitoring

logger = logging.getLogger("semel")

_NEVER = str((1 << 63) - 1)
_READ_BYTES = 4096
_STOP_WITHIN_S = 10.0
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_LISTENING_ADVICE = {
    errno.EADDRINUSE: "stop what listens there, or choose another port with --port, 0 for any that is free",
    errno.EADDRNOTAVAIL: "choose an address of this machine with --host",
    errno.EACCES: "choose a port above 1023 with --port",
}


def run(options: argparse.Namespace) -> int:
    level = logging.getLevelNamesMapping().get(options.log_level.upper())
    if level is None:
        return _refuse(f"--log-level is {options.log_level!r}, it can be DEBUG, INFO, WARNING or ERROR")
    log_to_stderr(level, options.log_format)
    if options.console is not None and not is_installed():
        return _refuse(NOT_INSTALLED)
    try:
        config = node_config(options, _flags(options))
        _check_shape(config)
        _check_open_listeners(config, is_meant=options.insecure)
    except ConfigError as error:
        return _refuse(str(error))
    raise_limit()
    send_buffer_bytes = config.int("socket.send.buffer.bytes")
    host = real_host(send_buffer_bytes=None if send_buffer_bytes == -1 else send_buffer_bytes)
    broker = Broker(host, config, _stop_at_once)
    turns = LoopTurns()
    with asyncio.Runner(loop_factory=turns.new_loop) as runner:
        return runner.run(_serve(broker, turns, options))


def _refuse(text: str) -> int:
    return _end_with(Exit.WRONG_CALL, text)


def _end_with(code: Exit, text: str) -> int:
    print(f"semel serve: {text}", file=sys.stderr)
    return code


def _flags(options: argparse.Namespace) -> dict[str, str]:
    """What the options of this command alone stand for."""
    flags: dict[str, str] = {}
    if options.port is not None or options.host is not None:
        port = 9092 if options.port is None else options.port
        flags["listeners"] = f"PLAINTEXT://{options.host or '127.0.0.1'}:{port}"
    if options.flush is not None:
        flags["log.flush.interval.messages"] = "1" if options.flush == "fsync" else _NEVER
    if options.metrics is not None:
        is_port = ":" not in options.metrics
        flags["metrics.listener"] = f"127.0.0.1:{options.metrics}" if is_port else options.metrics
    return flags


def _check_shape(config: BrokerConfig) -> None:
    """What a node can be among others, before anything is done. Nobody logs in yet, so only the listener that a request
    came by says whether a broker can have sent it."""
    layout = config.layout
    if Role.CONTROLLER in layout.roles and not layout.voters and len(layout.bootstrap_servers) > 1:
        name = "controller.quorum.bootstrap.servers"
        allowed = "this node alone, or all controllers in controller.quorum.voters: a quorum cannot grow yet"
        raise ConfigError(name, config.text(name), allowed)
    is_meant = config.text("inter.broker.listener.name") is not None
    if not layout.is_alone and layout.shares_with_clients and not is_meant:
        allowed = (
            f"a listener that clients do not use, or {layout.inter_broker} itself where everyone who reaches it is "
            "trusted: nobody logs in, so anyone can pose as a broker there"
        )
        raise ConfigError("inter.broker.listener.name", None, allowed)


def _check_open_listeners(config: BrokerConfig, *, is_meant: bool) -> None:
    """Whoever reaches a plain listener may do everything, unless there are access rules."""
    reachable = [one for one in config.layout.listeners if one.protocol == PLAINTEXT and not _is_local(one.host)]
    if not reachable:
        return
    told = ", ".join(f"{one.name} at {spelled(one.host or '*', one.port)}" for one in reachable)
    if not is_meant:
        allowed = (
            "addresses of this machine alone, such as 127.0.0.1, for listeners without TLS and login; "
            f"{told} can be reached by others: give it another protocol (docs/security.md), or pass --insecure"
        )
        raise ConfigError("listeners", config.text("listeners"), allowed)
    logger.warning("--insecure: nothing is encrypted and nobody logs in on %s, which others can reach", told)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _stop_at_once(error: BaseException) -> None:
    """Nothing can be promised any more: end before anything else is written or acknowledged."""
    logger.critical("the node stops: %s: %s", type(error).__name__, error, exc_info=error)
    logging.shutdown()
    os._exit(Exit.BROKEN)


def _age_ms() -> int:
    """How long this process has lived, the start of Python and all imports included; the system counts in 10 ms."""
    with open("/proc/self/stat") as stat:
        started_ticks = int(stat.read().rpartition(")")[2].split()[19])
    return round((time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")) * 1000)


async def _serve(broker: Broker, turns: LoopTurns, options: argparse.Namespace) -> int:
    is_json: bool = options.json
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    if options.stop_at_eof and not _watch_input(loop, broker, stopping):
        return _refuse("--stop-at-eof needs a pipe or a terminal as standard input, and this is neither")
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, _reopen_logs)
    monitoring = None
    try:
        monitoring = await _monitored(broker, turns)
        if not await _started(broker, stopping):
            return Exit.OK
    except ConfigError as error:
        return _refuse(str(error))
    except (AlreadyLocked, WrongDirectory, WrongCluster) as error:
        return _refuse(str(error))
    except CannotJoin as error:
        return _end_with(Exit.FAILED, str(error))
    except OSError as error:
        return _cannot_start(error, broker.store.root)
    except BrokenLog as error:
        return _end_with(Exit.FAILED, str(error))
    data = str(broker.store.root)
    # What is there now stays: to look through it for garbage again and again would hold up everybody for 20 ms.
    gc.freeze()
    _tell_ready(broker, data, None if monitoring is None else monitoring.address, is_json=is_json)
    turns.reset()
    console = None
    if options.console is not None:
        console = ConsoleBeside(_own_address(broker), options.console, is_json=is_json)
    await stopping.wait()
    if console is not None:
        await console.stop()
    try:
        await broker.leave()
        slow_turns = turns.document()  # nobody is served any more
        logger.info("%s", turns.told())
        if monitoring is not None:
            monitoring.close()
        await broker.stop()
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        advice = f"make some on the disk of {data} before it is started again; nothing is lost"
        return _end_with(Exit.FAILED, f"{error.strerror}: the node has ended as after a crash; {advice}")
    if is_json:
        _say({"event": "stopped", "slow_turns": slow_turns})
    else:
        print("semel has stopped cleanly", flush=True)
    return 0


async def _monitored(broker: Broker, turns: LoopTurns) -> Monitoring | None:
    """None: nobody asked for it. Raises ConfigError, OSError."""
    listener = broker.config.text("metrics.listener")
    if listener is None:
        return None
    try:
        from semel.broker.monitoring import Monitoring
    except ModuleNotFoundError as error:
        raise ConfigError(
            "metrics.listener", listener, f"unset: it needs {error.name}; pip install 'semel[metrics]'"
        ) from error
    address = parse_address(listener)
    assert address is not None, "the setting has been checked"
    monitoring = Monitoring(broker, turns)
    try:
        await monitoring.listen(*address)
    except OSError as error:
        raise ConfigError("metrics.listener", listener, f"an address that is free: {error.strerror}") from error
    return monitoring


async def _started(broker: Broker, stopping: asyncio.Event) -> bool:
    """False: it was told to stop while it waited for the other nodes of its cluster."""
    loop = asyncio.get_running_loop()
    if broker.config.layout.is_alone:
        await broker.start()
        return True
    starting, told = loop.create_task(broker.start()), loop.create_task(stopping.wait())
    await asyncio.wait([starting, told], return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
    if starting.cancelled():
        return False
    starting.result()
    return True


def _watch_input(loop: asyncio.AbstractEventLoop, broker: Broker, stopping: asyncio.Event) -> bool:
    """Stops the node when standard input ends, within seconds: nobody may be left who would kill it, and the other
    nodes of its cluster end, too. False: it cannot be watched."""

    def readable() -> None:
        if not os.read(0, _READ_BYTES):
            loop.remove_reader(0)
            logger.info("standard input has ended: the node stops")
            broker.hurry()
            stopping.set()
            loop.call_later(_STOP_WITHIN_S, os._exit, Exit.FAILED)

    try:
        loop.add_reader(0, readable)
    except OSError:  # closed, a file, or /dev/null
        return False
    return True


def _tell_ready(broker: Broker, data: str, metrics: str | None, *, is_json: bool) -> None:
    told = _told_to_others(broker.listeners)
    address, age_ms = spelled(str(told.advertised_host), told.advertised_port), _age_ms()
    listening = [spelled(listener.host or "*", listener.port) for listener in broker.listeners]
    if is_json:
        listeners = [_described(listener) for listener in broker.listeners]
        ready = {"event": "ready", "address": address, "listening": listening[0], "listeners": listeners}
        _say({**ready, "data": data, "start_ms": age_ms, **({"metrics": metrics} if metrics else {})})
        return
    where = "" if listening == [address] else f", listening on {listening[0]}"
    if len(listening) > 1:
        names = [listener.name for listener in broker.listeners]
        where = ", listeners " + ", ".join(f"{name}://{place}" for name, place in zip(names, listening, strict=True))
    if metrics:
        where += f", metrics at {metrics}/metrics"
    print(f"semel is ready at {address}, data in {data}, after {age_ms} ms{where}", flush=True)


def _told_to_others(listeners: Sequence[NodeListener]) -> NodeListener:
    """The address that matters: that of clients, or where there are none that of the other nodes."""
    told = [one for one in listeners if one.advertised_host]
    return next((one for one in told if ListenerKind.CLIENTS in one.kind), told[0])


def _own_address(broker: Broker) -> str:
    """Where a client on this machine reaches it."""
    told = _told_to_others(broker.listeners)
    host = "127.0.0.1" if told.host in (None, "", "0.0.0.0", "::") else str(told.host)
    return spelled(host, told.port)


def _described(listener: NodeListener) -> dict[str, object]:
    told = listener.advertised_host
    return {
        "name": listener.name,
        "for": [kind.name.lower() for kind in ListenerKind if kind in listener.kind and kind.name],
        "listening": spelled(listener.host or "*", listener.port),
        "advertised": None if told is None else spelled(told, listener.advertised_port),
    }


def _reopen_logs() -> None:
    """What a terminal that closes, or logrotate, asks for. A node that logs to stderr has nothing to open anew."""
    files = [handler for handler in logging.getLogger().handlers if isinstance(handler, logging.FileHandler)]
    for handler in files:
        handler.close()  # the next line opens it, by its name
    logger.info(
        "SIGHUP: %s; settings are read when the node starts",
        f"log files opened anew: {len(files)}" if files else "no log files to open anew",
    )


def _cannot_start(error: OSError, root: str) -> int:
    if error.errno in _NO_SPACE:
        advice = f"make some on the disk of {root}, and start again; nothing is lost"
        return _end_with(Exit.FAILED, f"{error.strerror}: {advice}")
    if error.filename is None:
        told = error.strerror or str(error)
        return _refuse(f"{told}; {_LISTENING_ADVICE[error.errno]}" if error.errno in _LISTENING_ADVICE else told)
    advice = "mend that, or name another directory with --data"
    return _refuse(f"cannot keep data in {root}: {error.filename}: {error.strerror}; {advice}")


def _say(document: dict[str, object]) -> None:
    print(json.dumps(document, ensure_ascii=False), flush=True)
