import pytest

from semel.wire.apis import API, request_class, response_class
from semel.wire.errors import WireError
from semel.wire.schema import Request, Response

SERVED = {
    "Produce": (3, 13),
    "Fetch": (4, 18),
    "ListOffsets": (1, 11),
    "Metadata": (0, 13),
    "OffsetCommit": (2, 10),
    "OffsetFetch": (1, 10),
    "FindCoordinator": (0, 6),
    "JoinGroup": (0, 9),
    "Heartbeat": (0, 4),
    "LeaveGroup": (0, 5),
    "SyncGroup": (0, 5),
    "DescribeGroups": (0, 6),
    "ListGroups": (0, 5),
    "SaslHandshake": (0, 1),
    "ApiVersions": (0, 5),
    "CreateTopics": (2, 7),
    "DeleteTopics": (1, 6),
    "DeleteRecords": (0, 2),
    "InitProducerId": (0, 6),
    "OffsetForLeaderEpoch": (2, 4),
    "AddPartitionsToTxn": (0, 5),
    "AddOffsetsToTxn": (0, 4),
    "EndTxn": (0, 5),
    "WriteTxnMarkers": (1, 2),
    "TxnOffsetCommit": (0, 6),
    "DescribeAcls": (1, 3),
    "CreateAcls": (1, 3),
    "DeleteAcls": (1, 3),
    "DescribeConfigs": (1, 4),
    "AlterConfigs": (0, 2),
    "IncrementalAlterConfigs": (0, 1),
    "SaslAuthenticate": (0, 2),
    "CreatePartitions": (0, 3),
    "DeleteGroups": (0, 3),
    "DescribeCluster": (0, 2),
    "DescribeProducers": (0, 0),
    "DescribeTransactions": (0, 0),
    "ListTransactions": (0, 2),
    "ConsumerGroupHeartbeat": (0, 1),
    "ConsumerGroupDescribe": (0, 1),
    "OffsetDelete": (0, 0),
    "DescribeLogDirs": (1, 5),
    "DescribeTopicPartitions": (0, 0),
    "ElectLeaders": (0, 2),
    "ListConfigResources": (0, 1),
}


def test_the_versions_of_kafka_4_are_there() -> None:
    ranges = {api.name: (api.min_version, api.max_version) for api in API.values()}
    assert {name: ranges[name] for name in SERVED} == SERVED


@pytest.mark.parametrize("key", API)
def test_the_table_and_the_descriptions_say_the_same(key: int) -> None:
    api = API[key]
    for cls, base in ((request_class(key), Request), (response_class(key), Response)):
        assert issubclass(cls, base)
        assert cls.__name__ == api.name + base.__name__
        assert cls.__module__ == f"semel.wire.spec.{api.module}"
        assert (cls.api_key, cls.min_version, cls.max_version, cls.flexible_from) == (
            api.key,
            api.min_version,
            api.max_version,
            api.flexible_from,
        )


def test_an_unknown_key_has_no_classes() -> None:
    with pytest.raises(WireError):
        request_class(999)
    with pytest.raises(WireError):
        response_class(-1)
