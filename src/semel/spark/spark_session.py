"""A Spark session that works as it is: Java found, this Python in the workers, quiet, and local if nothing is said.

    spark = semel.spark.session("orders")
    spark = semel.spark.session("orders", "spark://host:7077", spark_executor_memory="4g")

Without a cluster it listens on this machine only.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

from semel.spark.java import cache_directory, choose_java, keep_file
from semel.spark.registration import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("semel.spark")

DEFAULT_MASTER = "local[*]"
_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOG_FILE_OPTION = "-Dlog4j2.configurationFile="
_LOG_FILE = """# Spark's own default for its log begins with a dozen lines about itself.
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %p %c{1}: %m%n%ex
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""


def session(
    app_name: str = "semel", master: str | None = None, *, log_level: str = "ERROR", **conf: object
) -> SparkSession:
    """The session that runs already, or a new one. `conf` are settings of Spark, with dots or with underscores:
    `spark_ui_enabled=True`. Raises NoJava if there is no Java to run it on.

    Without a master it is "local[*]", or what spark-submit was told; with SPARK_REMOTE it is that server.
    """
    from pyspark.sql import SparkSession

    if "spark.remote" in spark_conf(conf) or (master is None and "SPARK_REMOTE" in os.environ):
        return _built(SparkSession.builder.appName(app_name), spark_conf(conf))
    settings = prepare(app_name, master, {"spark.log.level": log_level.upper(), **conf}, os.environ)
    made = _built(SparkSession.builder, settings)
    made.sparkContext.setLogLevel(log_level.upper())
    register()
    return made


def _built(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def prepare(
    app_name: str, master: str | None, conf: Mapping[str, object], environ: MutableMapping[str, str]
) -> dict[str, str]:
    """All settings of a session to be started; sets in `environ` what Spark looks for there."""
    from pyspark import SparkContext

    _choose_python(environ)
    given = {"spark.app.name": app_name, "spark.ui.showConsoleProgress": "false", **spark_conf(conf)}
    is_submitted = "PYSPARK_GATEWAY_PORT" in environ
    if not is_submitted or master is not None:
        given.setdefault("spark.master", master or DEFAULT_MASTER)
    if not is_submitted and SparkContext._gateway is None:
        choose_java(environ)
        _set_log_file(given, environ)
    local = _LOCAL.fullmatch(given.get("spark.master", ""))
    if local is None:
        return given
    environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    cores = int(local[1]) if (local[1] or "").isdecimal() else 1 if local[1] is None else os.cpu_count() or 1
    # The default of 200 is for clusters: every micro-batch of a query that keeps state would have so many tasks.
    defaults = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return {**defaults, "spark.sql.shuffle.partitions": str(cores), **given}


def _choose_python(environ: MutableMapping[str, str]) -> None:
    """Spark starts a data source by one name, that of the driver's Python, on the driver and in tasks: so a name that
    was given for the tasks has to be the driver's too, and to lead to a Python on both sides."""
    python = environ.setdefault("PYSPARK_PYTHON", sys.executable)
    drivers_python = environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
    if drivers_python != python:
        logger.warning(
            "PYSPARK_PYTHON is %s, but tasks of format('semel') run PYSPARK_DRIVER_PYTHON, which is %s",
            python,
            drivers_python,
        )
    if shutil.which(drivers_python, path=environ.get("PATH")) is None:
        logger.warning("there is no %s here: the driver needs it as the tasks do, under the same name", drivers_python)


def spark_conf(conf: Mapping[str, object]) -> dict[str, str]:
    """Settings as Spark spells them."""
    return {
        name if "." in name else name.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in conf.items()
    }


def _set_log_file(given: MutableMapping[str, str], environ: MutableMapping[str, str]) -> None:
    """Unless the program says itself how Spark is to log."""
    options = given.get(_JAVA_OPTIONS, "")
    if _LOG_FILE_OPTION in options or "SPARK_CONF_DIR" in environ:
        return
    file = cache_directory(environ) / "log4j2.properties"
    keep_file(file, _LOG_FILE)
    given[_JAVA_OPTIONS] = f"{options} {_LOG_FILE_OPTION}{file.as_uri()}".strip()
