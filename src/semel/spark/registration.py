"""What `format("semel")` needs of a program's own process, so that it is written as `format("kafka")` is.

Spark finds a data source in Python by the session that is active in the thread of Java, and a new thread has none: a
query that is started there ends with DATA_SOURCE_NOT_FOUND. And a write without a mode is refused, before any code of
the source runs, where Spark's own sink appends. Both are settled where a write begins, in `start` and `save`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

FORMAT = "semel"
_WITHOUT_MODE = "ErrorIfExists"
_DONE = "_semel_registered"


def register() -> None:
    """Has every thread and session of this process find the data source, and `write.save()` append without a mode.

    `semel.spark.session()` has done it already. A session that was made in another way needs it once, at any time.
    Writes of other formats stay as they are.
    """
    from pyspark.sql.readwriter import DataFrameWriter
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    if getattr(DataStreamWriter, _DONE, False):
        return
    for name in ("start", "toTable"):
        setattr(DataStreamWriter, name, _in_its_session(getattr(DataStreamWriter, name)))
    DataFrameWriter.save = _appending(DataFrameWriter.save)  # type: ignore[method-assign]
    setattr(DataStreamWriter, _DONE, True)


def _in_its_session(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def run(writer: Any, *args: Any, **kwargs: Any) -> Any:
        _activate(writer)
        return method(writer, *args, **kwargs)

    return run


def _appending(save: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(save)
    def run(
        writer: Any, path: str | None = None, format: str | None = None, mode: str | None = None, **others: Any
    ) -> Any:
        _activate(writer)
        is_ours = (format or writer._jwrite.source()).lower() == FORMAT
        if is_ours and mode is None and str(writer._jwrite.curmode()) == _WITHOUT_MODE:
            mode = "append"
        return save(writer, path, format, mode, **others)

    return run


def _activate(writer: Any) -> None:
    """As Spark itself does in `createDataFrame`."""
    session = writer._spark
    session._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)
