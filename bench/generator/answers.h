// What is answered to Produce 9 and Fetch 12.

#pragma once
#include "connection.h"

// In the time of the load; `all` has what was answered after its end, too.
typedef struct {
    uint64_t requests, records, bytes;
} Tally;

static Tally in_time, all;
static uint64_t errors, unsent;
static int first_error;

static void note_error(int code)
{
    if (errors++ == 0)
        first_error = code;
}

static void read_produced(Reader *reader, Tally *found)
{
    for (uint64_t topics = take_length(reader); topics > 0; topics--) {
        skip_compact(reader);
        for (uint64_t left = take_length(reader); left > 0; left--) {
            take_int(reader, 4);
            int code = (int)take_int(reader, 2);
            take(reader, 8 + 8 + 8); // base offset, append time, start of the log
            for (uint64_t wrong = take_length(reader); wrong > 0; wrong--) {
                take_int(reader, 4);
                skip_compact(reader);
                skip_tags(reader);
            }
            skip_compact(reader);
            skip_tags(reader);
            if (code != 0) {
                note_error(code);
                continue;
            }
            found->records += (uint64_t)options.records;
            found->bytes += (uint64_t)options.records * (uint64_t)options.value_bytes;
        }
        skip_tags(reader);
    }
}

// The place after the last whole batch; a batch that is cut short is read again.
static void read_records(Partition *partition, const uint8_t *bytes, uint64_t size, Tally *found)
{
    found->bytes += size;
    while (size >= BATCH_HEADER) {
        uint64_t batch_size = (uint64_t)get_int(bytes + LENGTH_AT, 4) + LENGTH_AT + 4;
        if (batch_size < BATCH_HEADER || batch_size > size)
            break;
        partition->offset = get_int(bytes, 8) + get_int(bytes + LAST_DELTA_AT, 4) + 1;
        partition->is_new = true;
        found->records += (uint64_t)get_int(bytes + COUNT_AT, 4);
        bytes += batch_size;
        size -= batch_size;
    }
}

static Partition *partition_of(Connection *connection, int64_t number)
{
    // In the order of their numbers, from the first one on and around the end.
    int64_t place = number - connection->partitions->number;
    place += place < 0 ? options.partitions : 0;
    if (place < 0 || place >= options.partitions_per_request)
        fail("The broker answered for partition %" PRId64 ", which nobody asked for.", number);
    return connection->partitions + place;
}

static void forget_session(Connection *connection)
{
    connection->session = connection->session_epoch = 0;
    for (int place = 0; place < options.partitions_per_request; place++)
        connection->partitions[place].is_new = true;
}

static void read_fetched(Connection *connection, Reader *reader, Tally *found)
{
    take_int(reader, 4); // the throttle time
    int code = (int)take_int(reader, 2);
    int32_t session = (int32_t)take_int(reader, 4);
    if (code != 0) {
        note_error(code);
        forget_session(connection);
        return;
    }
    if (options.sessions && session == 0)
        fail("The broker gave no fetch session. Allow more of them, or use fewer connections.");
    connection->session = options.sessions ? session : 0;
    connection->session_epoch = connection->session_epoch == INT32_MAX ? 1 : connection->session_epoch + 1;
    for (uint64_t topics = take_length(reader); topics > 0; topics--) {
        skip_compact(reader);
        for (uint64_t left = take_length(reader); left > 0; left--) {
            Partition *partition = partition_of(connection, take_int(reader, 4));
            code = (int)take_int(reader, 2);
            int64_t high_watermark = take_int(reader, 8);
            take(reader, 8 + 8); // last stable offset, start of the log
            for (uint64_t aborted = take_length(reader); aborted > 0; aborted--) {
                take(reader, 8 + 8);
                skip_tags(reader);
            }
            take_int(reader, 4); // the replica to read from
            uint64_t size = take_length(reader);
            const uint8_t *records = take(reader, size);
            skip_tags(reader);
            if (code != 0)
                note_error(code);
            else
                read_records(partition, records, size, found);
            // At the end it begins again.
            if (code != 0 || (partition->offset > 0 && partition->offset >= high_watermark)) {
                partition->offset = 0;
                partition->is_new = true;
            }
        }
        skip_tags(reader);
    }
}
