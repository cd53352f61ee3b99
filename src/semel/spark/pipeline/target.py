"""What `status` and `adopt` are pointed at: a checkpoint, or the file of a pipeline that knows its checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from semel.client.errors import BadSetting, SemelError
from semel.spark.adoption import adopt_checkpoint, marker_of
from semel.spark.pipeline.definition import TableSink
from semel.spark.pipeline.errors import PipelineError, PipelineRefused
from semel.spark.pipeline.file import load_pipeline
from semel.spark.pipeline.notes import Notes, notes_of, reachable, recall
from semel.spark.pipeline.status import Status, status_of
from semel.spark.pipeline.table import marker_in, writer_of
from semel.spark.sink_options import DEFAULT_MARKER_TOPIC

if TYPE_CHECKING:
    from semel.spark.jdbc import TableWriter
    from semel.spark.marker import Marker


@dataclass(frozen=True)
class Target:
    checkpoint: str
    notes: Notes
    options: Mapping[str, str] = field(repr=False)  # they may hold a password
    table: TableWriter | None = None
    """The database, if the sink is a table and the file says which."""
    app_id: str = ""
    """Of a `publish_each`, if it is about that and not about the sink."""

    @classmethod
    def of(cls, target: str, address: str | None, given: Sequence[str], app_id: str = "") -> Target:
        """Raises PipelineRefused if it is neither, or if nobody says where the cluster is."""
        if app_id and target.endswith((".toml", ".py")):
            raise PipelineRefused(f"--app-id is for a checkpoint of a program of your own, which {target} is not")
        options = dict(_option(text) for text in given)
        if target.endswith((".toml", ".py")):
            return cls._of_file(Path(target), address, options)
        try:
            notes = recall(target)
        except BadSetting as error:
            raise PipelineRefused(str(error)) from error
        if address is not None:
            before = notes or Notes(address, None, DEFAULT_MARKER_TOPIC)
            notes = Notes(address, None, before.marker_topic, before.transactional_id_prefix)
        if notes is None:
            raise PipelineRefused(
                f"{target}: is no checkpoint of a pipeline that was run here; give the cluster by --address, "
                "or the pipeline's file instead of the checkpoint"
            )
        return cls(target, notes, options, app_id=app_id)

    @classmethod
    def _of_file(cls, path: Path, address: str | None, options: Mapping[str, str]) -> Target:
        pipeline = load_pipeline(path)
        known = recall(pipeline.checkpoint)
        notes = notes_of(pipeline, address or pipeline.address or ("" if known is None else known.address))
        if address is not None:
            notes = Notes(address, None, notes.marker_topic, notes.transactional_id_prefix)
        kafka = {f"kafka.{name}": text for name, text in pipeline.kafka.items()}
        if isinstance(pipeline.sink, TableSink):
            return cls(pipeline.checkpoint, notes, {**kafka, **options}, writer_of(pipeline, pipeline.sink))
        return cls(pipeline.checkpoint, notes, {**kafka, **pipeline.sink.options, **options})

    @contextmanager
    def status(self) -> Iterator[tuple[Status, dict[str, str]]]:
        """The status, and the options of the write by which it was asked for; while the broker can be reached."""
        with reachable(self.notes) as address:
            own = {"kafka.bootstrap.servers": address, "transactionalIdPrefix": self.notes.transactional_id_prefix}
            if self.notes.marker_topic is not None:
                own["markerTopic"] = self.notes.marker_topic
            options = {**own, **self.options, "checkpointLocation": self.checkpoint}
            try:
                status = status_of(self.checkpoint, options, self._marker_from(options), self.app_id)
            except BadSetting as error:
                raise PipelineRefused(str(error)) from error
            yield status, options

    def _marker_from(self, options: Mapping[str, str]) -> Callable[[], Marker | None] | None:
        if self.notes.marker_topic is not None:
            return lambda: marker_of(options, self.app_id)[1]
        table = self.table
        return None if table is None else lambda: marker_in(table)

    def adopt(self, options: Mapping[str, str], status: Status, batch_id: int | None) -> int:
        """Has the sink take a batch for the last that was published; returns its number. `options` as of `status`."""
        number = status.completed if batch_id is None else batch_id
        try:
            if self.table is not None:
                self.table.adopt(number)
                return number
            return adopt_checkpoint(options, batch_id, self.app_id).batch_id
        except BadSetting as error:
            raise PipelineRefused(str(error)) from error
        except SemelError as error:
            raise PipelineError(f"the marker was not changed, or nobody knows: {error}") from error


def _option(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise PipelineRefused(f"--option {text!r} is not allowed; allowed: NAME=VALUE")
    return name.strip(), value.strip()
