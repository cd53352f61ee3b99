"""A client that does what it should while others do not, and that judges how it was served."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from raw_client import RawClient, batch_of
from real_broker import RealBroker

HONEST_TOPIC = "honest"
# A stall of everybody, not the wait of a busy machine.
LONGEST_ANSWER_S = 5.0


class HonestClient(threading.Thread):
    """Produces numbered records, small and large ones, and reads the last one back; notes the longest answer."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.stopping = threading.Event()
        self.sent = 0
        self.longest_s = 0.0
        self.failure: BaseException | None = None

    def goes_on(self, rounds: int = 12, within_s: float = 10.0) -> None:
        """Waits until it has been served that often from now on; 12 rounds hold a large request at least."""
        wanted = self.sent + rounds
        deadline = time.monotonic() + within_s
        while self.sent < wanted and self.failure is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if self.failure is not None:
            raise self.failure
        assert self.sent >= wanted, f"the honest client was served {self.sent - wanted + rounds} times in {within_s} s"

    def run(self) -> None:
        try:
            with RawClient(self.port) as client:
                client.make_topic(HONEST_TOPIC)
                producer_id = client.new_producer_id()
                while not self.stopping.is_set():
                    self._round(client, producer_id)
                    time.sleep(0.005)
        except BaseException as error:
            self.failure = error

    def _round(self, client: RawClient, producer_id: int) -> None:
        # Every tenth is larger than one read of the broker, so it needs a buffer of its own.
        padding = b"." * (600_000 if self.sent % 10 == 9 else 50)
        batch = batch_of(
            [b"%d %s" % (self.sent, padding)],
            timestamp_ms=int(time.time() * 1000),
            producer_id=producer_id,
            sequence=self.sent,
        )
        started = time.monotonic()
        answer = client.produce(HONEST_TOPIC, 0, batch)
        assert (answer.error_code, answer.base_offset) == (0, self.sent)
        read = client.fetch(HONEST_TOPIC, 0, self.sent)
        assert read.error_code == 0
        assert len(read.records or b"") >= len(batch)
        self.longest_s = max(self.longest_s, time.monotonic() - started)
        self.sent += 1


@contextlib.contextmanager
def honest_client(broker: RealBroker) -> Iterator[HonestClient]:
    """Around what the hostile ones do; judges at the end."""
    honest = HonestClient(broker.port)
    honest.start()
    honest.goes_on()
    yield honest
    honest.goes_on()
    honest.stopping.set()
    honest.join(30)
    if honest.failure is not None:
        raise honest.failure
    assert honest.longest_s < LONGEST_ANSWER_S
    assert broker.is_running
    with RawClient(broker.port) as client:
        numbers = [int((record.value or b"").split(b" ")[0]) for record in client.read_log(HONEST_TOPIC, 0)]
    assert numbers == list(range(honest.sent))
    assert "Traceback" not in broker.log()
