"""Found by Spark through its name: it looks for modules that begin with `pyspark_`, and takes their DefaultSource.

So `format("semel")` needs no registration wherever semel is installed.
"""

from semel.spark.data_source import SemelDataSource as DefaultSource

__all__ = ["DefaultSource"]
