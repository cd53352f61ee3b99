// What is asked: Produce 9 and Fetch 12.

#pragma once
#include "connection.h"
#include "latency.h"

enum { PRODUCE = 0, PRODUCE_VERSION = 9, FETCH = 1, FETCH_VERSION = 12 };

static void put_batch(Buffer *buffer, const Connection *connection)
{
    size_t start = buffer->size;
    put_int(buffer, 8, 0); // the base offset
    put_int(buffer, 4, 0); // the length
    put_int(buffer, 4, -1); // the leader's epoch
    put_int(buffer, 1, 2); // magic
    put_int(buffer, 4, 0); // the CRC
    put_int(buffer, 2, 0); // attributes
    put_int(buffer, 4, options.records - 1);
    put_int(buffer, 8, 0); // the first timestamp
    put_int(buffer, 8, 0); // the last one
    put_int(buffer, 8, connection->producer_id);
    put_int(buffer, 2, connection->epoch);
    put_int(buffer, 4, -1); // the sequence
    put_int(buffer, 4, options.records);
    Buffer record = {0};
    uint32_t chance = 2463534242u;
    for (int number = 0; number < options.records; number++) {
        record.size = 0;
        put_int(&record, 1, 0); // attributes
        put_signed_varint(&record, 0); // of its timestamp
        put_signed_varint(&record, number); // of its offset
        put_signed_varint(&record, -1); // no key
        put_signed_varint(&record, options.value_bytes);
        for (int place = 0; place < options.value_bytes; place++) {
            chance ^= chance << 13, chance ^= chance >> 17, chance ^= chance << 5;
            put_int(&record, 1, 'a' + chance % 26);
        }
        put_signed_varint(&record, 0); // no headers
        put_signed_varint(buffer, (int64_t)record.size);
        put_bytes(buffer, record.bytes, record.size);
    }
    free(record.bytes);
    set_int(buffer->bytes + start + LENGTH_AT, 4, (int64_t)(buffer->size - start) - LENGTH_AT - 4);
}

// Once a connection: `renew_produce` changes what differs from request to request.
static void write_produce(Connection *connection)
{
    Buffer *request = &connection->request, batch = {0};
    put_batch(&batch, connection);
    begin_request(request, PRODUCE, PRODUCE_VERSION, true);
    put_varint(request, 0); // no transactional id
    put_int(request, 2, -1); // acks
    put_int(request, 4, 30000);
    put_varint(request, 1 + 1); // one topic
    put_compact(request, options.topic, strlen(options.topic));
    put_varint(request, (uint64_t)options.partitions_per_request + 1);
    for (int place = 0; place < options.partitions_per_request; place++) {
        Partition *partition = connection->partitions + place;
        put_int(request, 4, partition->number);
        put_compact(request, batch.bytes, batch.size);
        partition->batch_at = request->size - batch.size;
        partition->batch_size = batch.size;
        put_no_tags(request);
    }
    put_no_tags(request);
    put_no_tags(request);
    end_request(request);
    free(batch.bytes);
}

static void renew_produce(Connection *connection)
{
    int64_t now_ms = clock_ns(CLOCK_REALTIME) / 1000000;
    for (int place = 0; place < options.partitions_per_request; place++) {
        Partition *partition = connection->partitions + place;
        uint8_t *batch = connection->request.bytes + partition->batch_at;
        set_int(batch + BASE_TIME_AT, 8, now_ms);
        set_int(batch + MAX_TIME_AT, 8, now_ms);
        if (!options.plain) {
            set_int(batch + SEQUENCE_AT, 4, partition->sequence);
            partition->sequence = (int32_t)(((int64_t)partition->sequence + options.records) & INT32_MAX);
        }
        set_int(batch + CRC_AT, 4, crc32c(batch + CHECKED_FROM, partition->batch_size - CHECKED_FROM));
    }
}

// With a session, only partitions whose place is new for it; without one, all.
static void write_fetch(Connection *connection)
{
    Buffer *request = &connection->request;
    bool knows_all = options.sessions && connection->session_epoch > 0;
    uint64_t wanted = 0;
    for (int place = 0; place < options.partitions_per_request; place++)
        wanted += !knows_all || connection->partitions[place].is_new;
    begin_request(request, FETCH, FETCH_VERSION, true);
    put_int(request, 4, -1); // no replica
    put_int(request, 4, 500); // the longest wait in milliseconds
    put_int(request, 4, 1); // for so many bytes
    put_int(request, 4, INT_MAX); // and at most so many; each partition has its own limit
    put_int(request, 1, 0); // read uncommitted
    put_int(request, 4, connection->session);
    put_int(request, 4, options.sessions ? connection->session_epoch : -1);
    put_varint(request, (wanted > 0) + 1u); // topics
    if (wanted > 0) {
        put_compact(request, options.topic, strlen(options.topic));
        put_varint(request, wanted + 1);
        for (int place = 0; place < options.partitions_per_request; place++) {
            Partition *partition = connection->partitions + place;
            if (knows_all && !partition->is_new)
                continue;
            partition->is_new = false;
            put_int(request, 4, partition->number);
            put_int(request, 4, -1); // the leader's epoch
            put_int(request, 8, partition->offset);
            put_int(request, 4, -1); // the epoch of what was read last
            put_int(request, 8, -1); // where a follower's log starts
            put_int(request, 4, options.max_bytes);
            put_no_tags(request);
        }
        put_no_tags(request);
    }
    put_varint(request, 1); // nothing forgotten
    put_varint(request, 1); // no rack
    put_no_tags(request);
    end_request(request);
}
