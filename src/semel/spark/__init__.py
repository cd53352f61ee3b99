"""The data pipeline on Spark: the PySpark data source `semel`, a source and an exactly-once sink. Needs Spark 4.2.

    stream = spark.readStream.format("semel").option("kafka.bootstrap.servers", "localhost:9092")
    stream.option("subscribe", "orders").load()

`session()` makes a Spark session with Java, Python and log level set; `register()` does for a session of your own what
that one has done for itself: every thread finds the data source. The rest of semel never imports any of this.
Modules are loaded when they are used: Spark starts many short-lived processes.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semel.spark.registration import register as register
    from semel.spark.spark_session import session as session


def __getattr__(name: str) -> Any:
    if name == "session":
        from semel.spark.spark_session import session

        return session
    if name == "register":
        from semel.spark.registration import register

        return register
    raise AttributeError(f"module 'semel.spark' has no attribute {name!r}")
