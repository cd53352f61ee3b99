"""A pipeline in Python: a function from the DataFrame of the source to the DataFrame of the sink.

    semel pipeline run examples/pipelines/shout.py --address localhost:9092 --from talk --to shouting

Values are bytes here, as the source has no format; the columns are those of Spark's own Kafka source.
"""

from pyspark.sql import DataFrame

settings = {
    "source": {"topics": ["talk"]},
    "sink": {"topic": "shouting"},
}


def pipeline(df: DataFrame) -> DataFrame:
    return df.selectExpr("key", "upper(CAST(value AS STRING)) AS value", "timestamp")
