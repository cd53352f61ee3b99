"""semel: an exactly-once event log for Python and Spark that speaks the Kafka protocol."""

__version__ = "0.1.0"
