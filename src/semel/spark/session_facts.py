"""What a sink has to know of the Spark session, and only its tasks are told.

Spark hands the session's settings to tasks, as local properties, and none to the processes in which writers are made
and batches are committed. So the tasks tell the commit, with what they have staged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from semel.spark.object_stores import Hadoop, hadoop_settings

if TYPE_CHECKING:
    from pyspark import TaskContext

_CHECKPOINT_ROOT = "spark.sql.streaming.checkpointLocation"
_WAREHOUSE = "spark.sql.warehouse.dir"
_MASTER = "spark.master"


@dataclass(frozen=True)
class SessionFacts:
    checkpoint_root: str | None = None
    """Where the session keeps the checkpoints of queries that say nothing of their own."""
    warehouse: str | None = None
    is_one_machine: bool = True
    hadoop: Hadoop = field(default=(), repr=False)  # it may hold a password

    @classmethod
    def of(cls, conf: Mapping[str, str]) -> SessionFacts:
        return cls(
            checkpoint_root=conf.get(_CHECKPOINT_ROOT) or None,
            warehouse=conf.get(_WAREHOUSE) or None,
            is_one_machine=(conf.get(_MASTER) or "").startswith("local"),
            hadoop=hadoop_settings(conf),
        )


def facts_of(task: TaskContext) -> SessionFacts:
    """Of the session that has started the task. Spark has no public call that lists local properties."""
    return SessionFacts.of(getattr(task, "_localProperties", None) or {})
