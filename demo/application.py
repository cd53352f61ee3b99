"""The Spark application of the demo: payments in, bookings out, written in two ways at once.

Arguments: the broker's address and a directory for checkpoints. Ends by SIGTERM.
"""

import signal
import sys
from threading import Event

import semel.spark

WAYS = {"plain": "at-least-once", "semel": "exactly-once"}
BOOKING = """
    to_json(named_struct('payment', payment.number, 'account', payment.account, 'cents', payment.cents,
                         'fee', greatest(1, payment.cents div 100))) as value
"""


def main() -> None:
    address, directory = sys.argv[1:]
    spark = semel.spark.session("payments", "local[2]", spark_ui_enabled=False)

    stopping = Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
    payments = (
        spark.readStream.format("semel")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", "payments")
        .option("startingOffsets", "earliest")
        .load()
    )
    bookings = payments.selectExpr(
        "key", "from_json(cast(value as string), 'number long, account long, cents long') as payment"
    ).selectExpr("key", BOOKING)
    queries = [
        bookings.writeStream.format("semel")
        .queryName(way)
        .option("kafka.bootstrap.servers", address)
        .option("topic", way)
        .option("delivery", delivery)
        .option("checkpointLocation", f"{directory}/{way}")
        .trigger(processingTime="1 second")
        .start()
        for way, delivery in WAYS.items()
    ]
    while not stopping.wait(0.2):
        for query in [query for query in queries if not query.isActive]:
            print(f"{query.name} has ended: {query.exception()}", file=sys.stderr)
            queries.remove(query)
    for query in queries:
        query.stop()


if __name__ == "__main__":
    main()
