"""Why the sink does not commit a batch. Each text says what was found and what to do about it."""

from __future__ import annotations

from semel.client.errors import FatalError


class SinkError(FatalError):
    """The batch was not committed, as far as this commit can tell."""


class CheckpointRefused(SinkError):
    """The marker in the cluster does not fit the checkpoint: going on would lose records or write them twice."""

    advice = (
        "if this checkpoint is the one to go on with, and you know what its batches have written, "
        "say so with: semel pipeline adopt"
    )

    def __init__(self, text: str, *, arguments: str = "") -> None:
        """`arguments` complete the command, if it needs more than the checkpoint."""
        self.command = f"semel pipeline adopt {arguments}".rstrip()
        self.advice = f"{type(self).advice} {arguments}".rstrip()
        super().__init__(text)


class BatchRefused(SinkError):
    """The batch does not follow the one that the database has from this query."""

    advice = (
        "the checkpoint was restored, copied, or used by another sink before; if it is the one to go on with, and you "
        "know what its batches have written, say so with: semel pipeline adopt FILE (in a program of your own, by "
        "adopt(batch) of its table_writer)"
    )


class PlaceUnreachable(SinkError):
    """A checkpoint or a place for staged batches is in a store that does not answer, or refuses."""

    advice = (
        "check the address and the credentials: those of the session count, such as spark.hadoop.fs.s3a.endpoint and "
        "spark.hadoop.fs.s3a.access.key, and else those that the environment of driver and executors has"
    )


class StagedDataLost(SinkError):
    """What tasks have staged is not there, or is not what they wrote."""

    advice = "start the query again: the batch is then computed and staged anew"


class Overtaken(SinkError):
    """Another commit of the same query has taken over: a newer run of it, or an older one that is not dead."""

    advice = "only one run may use a checkpoint: stop the others, then start the query again"


class BatchTooSlow(SinkError):
    """The batch could not be written within the transaction's timeout."""


class RecordRefused(SinkError):
    """A record that its topic would refuse, and nowhere else to put it."""

    advice = "mend the query, change the topic's settings, or set deadLetterTopic to set such records aside"


class MarkerTopicUnfit(SinkError):
    """The topic for markers is not as it has to be."""


class OutcomeUnknown(SinkError):
    """A batch write without txnAppId was sent to be committed, and no answer came."""

    advice = "look into the topic before writing again; with txnAppId and txnVersion a second write would be harmless"
