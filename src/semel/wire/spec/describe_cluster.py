"""DescribeCluster (key 60): the brokers, or the controllers, of the cluster."""

from semel.wire.schema import I8, I16, I32, Array, Bool, Request, Response, Str, Struct, field


class DescribeClusterRequest(Request, key=60, versions="0-2", flexible=0):
    include_cluster_authorized_operations: Bool = False
    endpoint_type: I8 = field(default=1, since=1)
    include_fenced_brokers: Bool = field(default=False, since=2)


class DescribeClusterBroker(Struct):
    broker_id: I32 = 0
    host: Str = ""
    port: I32 = 0
    rack: Str | None = None
    is_fenced: Bool = field(default=False, since=2)


class DescribeClusterResponse(Response, key=60, versions="0-2", flexible=0):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: Str | None = None
    endpoint_type: I8 = field(default=1, since=1)
    cluster_id: Str = ""
    controller_id: I32 = -1
    brokers: Array[DescribeClusterBroker] = ()
    cluster_authorized_operations: I32 = -(1 << 31)
