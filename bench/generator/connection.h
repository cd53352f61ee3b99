// One connection: its partitions, what is under way on it, and the producer id that it writes with.

#pragma once
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>

#include "options.h"
#include "wire.h"

enum { INIT_PRODUCER_ID = 22, INIT_PRODUCER_ID_VERSION = 1 };
enum { COORDINATOR_LOADING = 14, NOT_COORDINATOR = 16 };

// A partition as one connection knows it. `is_new`: the session does not know yet where it is to be read from.
typedef struct {
    int number;
    size_t batch_at, batch_size; // of its batch in the request
    int32_t sequence;
    int64_t offset;
    bool is_new;
} Partition;

typedef struct {
    int socket, epoch;
    int64_t producer_id;
    Partition *partitions; // as many as one request has
    Buffer request, received;
    size_t sent; // of the request; all of it: nothing is being written
    bool waits_for_room;
    int64_t *began_ns; // a ring, of requests that are not answered
    uint32_t oldest, unanswered, correlation, answered;
    uint64_t next_number; // of its next request among those of all connections
    int32_t session, session_epoch;
} Connection;

static int dial(void)
{
    int opened = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (opened < 0 || connect(opened, (struct sockaddr *)&address, sizeof address) != 0)
        fail("No connection to 127.0.0.1:%d: %s. Does a broker listen there?", options.port, strerror(errno));
    setsockopt(opened, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return opened;
}

static void receive_exactly(int from, uint8_t *bytes, size_t size)
{
    while (size > 0) {
        ssize_t count = recv(from, bytes, size, 0);
        if (count <= 0)
            fail("The broker closed a connection instead of giving a producer id.");
        bytes += count;
        size -= (size_t)count;
    }
}

// Asks again while the broker, which may have just started, has none to give.
static void get_producer_id(Connection *connection)
{
    Buffer *request = &connection->request;
    begin_request(request, INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, false);
    put_int(request, 2, -1); // no transactional id
    put_int(request, 4, 60000);
    end_request(request);
    for (int tries = 0; tries < 200; tries++) {
        uint8_t answer[24]; // length, correlation id, throttle time, error code, producer id, epoch
        if (send(connection->socket, request->bytes, request->size, MSG_NOSIGNAL) != (ssize_t)request->size)
            fail("A request for a producer id could not be sent: %s", strerror(errno));
        receive_exactly(connection->socket, answer, sizeof answer);
        int code = (int)get_int(answer + 12, 2);
        connection->producer_id = get_int(answer + 14, 8);
        connection->epoch = (int)get_int(answer + 22, 2);
        if (code == 0)
            return;
        if (code < COORDINATOR_LOADING || code > NOT_COORDINATOR)
            fail("The broker refused a producer id with error code %d.", code);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    fail("The broker had no producer id for ten seconds.");
}
