// A load generator for the Kafka protocol: one thread, epoll, a line of JSON at the end.
//
//   load_generator produce --port 9092 --topic t --connections 4 --in-flight 5 --records 16 --value-bytes 1000
//   load_generator fetch --port 9092 --topic t --partitions 4 --partitions-per-request 4 --sessions
//
// Closed loop: each connection keeps --in-flight requests unanswered. Open loop (--rate): requests are due at fixed
// times, whatever the broker does, and latency counts from the time a request was due. So a broker that stalls cannot
// hide the requests that had to wait.
//
// Apache Kafka 4 serves the same versions: InitProducerId 1, Produce 9, Fetch 12.

#define _GNU_SOURCE
#include <inttypes.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "answers.h"
#include "connection.h"
#include "latency.h"
#include "options.h"
#include "requests.h"

static Connection *connections;
static int epoll, alarm_clock;
static uint64_t unanswered; // on all of them
static bool is_over;
static int64_t begin_ns, end_ns, over_ns;
static int64_t alarm_ns; // when the clock is to be looked at next
static const int64_t DRAIN_NS = 30000000000; // how long answers may take after the end

static void watch(Connection *connection, int operation, bool for_room)
{
    struct epoll_event event = {.events = EPOLLIN | (for_room ? EPOLLOUT : 0), .data.ptr = connection};
    if (epoll_ctl(epoll, operation, connection->socket, &event) != 0)
        fail("epoll_ctl: %s", strerror(errno));
    connection->waits_for_room = for_room;
}

// -- sending

// Open loop: request n of all is due n / rate seconds after the begin, and belongs to connection n modulo their number.
static int64_t due_ns(const Connection *connection)
{
    return begin_ns + (int64_t)((double)connection->next_number / options.rate * 1e9);
}

static bool has_room(const Connection *connection)
{
    return !is_over && connection->unanswered < (uint32_t)options.in_flight;
}

static bool may_send(const Connection *connection, int64_t time_ns)
{
    return has_room(connection) && (options.rate <= 0 || due_ns(connection) <= time_ns);
}

// A request counts from now, or in an open loop from when it was due.
static void begin_request_at(Connection *connection, int64_t time_ns)
{
    if (options.fetches)
        write_fetch(connection);
    else
        renew_produce(connection);
    set_int(connection->request.bytes + CORRELATION_AT, 4, connection->correlation++);
    uint32_t place = (connection->oldest + connection->unanswered) % (uint32_t)options.in_flight;
    connection->began_ns[place] = options.rate > 0 ? due_ns(connection) : time_ns;
    connection->next_number += (uint64_t)options.connections;
    connection->unanswered++;
    connection->sent = 0;
    unanswered++;
}

// A connection that has room wants to hear when its next request is due. One that has none will get an answer first.
static void send_requests(Connection *connection)
{
    Buffer *request = &connection->request;
    for (;;) {
        if (connection->sent == request->size) {
            int64_t time_ns = now_ns();
            if (!may_send(connection, time_ns))
                break;
            begin_request_at(connection, time_ns);
        }
        ssize_t count = send(connection->socket, request->bytes + connection->sent, request->size - connection->sent,
                             MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count < 0 && errno != EAGAIN && errno != EINTR)
            fail("A request could not be sent: %s", strerror(errno));
        connection->sent += count > 0 ? (size_t)count : 0;
        if (count < 0 && errno == EAGAIN) {
            if (!connection->waits_for_room)
                watch(connection, EPOLL_CTL_MOD, true);
            return;
        }
    }
    if (connection->waits_for_room)
        watch(connection, EPOLL_CTL_MOD, false);
    if (has_room(connection) && options.rate > 0 && due_ns(connection) < alarm_ns)
        alarm_ns = due_ns(connection);
}

// -- answers

static void read_answer(Connection *connection, const uint8_t *bytes, size_t size)
{
    Reader reader = {bytes, bytes + size};
    Tally found = {.requests = 1};
    uint32_t correlation = (uint32_t)take_int(&reader, 4);
    if (connection->unanswered == 0 || correlation != connection->answered++)
        fail("An answer came out of order.");
    skip_tags(&reader);
    note_latency(now_ns() - connection->began_ns[connection->oldest]);
    connection->oldest = (connection->oldest + 1) % (uint32_t)options.in_flight;
    connection->unanswered--;
    unanswered--;
    if (options.fetches)
        read_fetched(connection, &reader, &found);
    else
        read_produced(&reader, &found);
    Tally *tallies[] = {&all, is_over ? NULL : &in_time};
    for (int place = 0; place < 2 && tallies[place] != NULL; place++) {
        tallies[place]->requests += found.requests;
        tallies[place]->records += found.records;
        tallies[place]->bytes += found.bytes;
    }
}

static void receive_answers(Connection *connection)
{
    Buffer *received = &connection->received;
    reserve(received, 64 << 10);
    ssize_t count = recv(connection->socket, received->bytes + received->size, received->room - received->size,
                         MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count <= 0)
        fail("The broker closed a connection%s%s.", count ? ": " : "", count ? strerror(errno) : "");
    received->size += (size_t)count;
    size_t done = 0;
    while (received->size - done >= 4) {
        int64_t size = get_int(received->bytes + done, 4);
        if (size < 0)
            fail("The broker sent an answer with a length below zero.");
        if (received->size - done < 4 + (size_t)size) {
            reserve(received, 4 + (size_t)size - (received->size - done));
            break;
        }
        read_answer(connection, received->bytes + done + 4, (size_t)size);
        done += 4 + (size_t)size;
    }
    received->size -= done;
    memmove(received->bytes, received->bytes + done, received->size);
}

// -- the run

static void open_connections(void)
{
    connections = calloc((size_t)options.connections, sizeof *connections);
    for (int number = 0; number < options.connections; number++) {
        Connection *connection = connections + number;
        connection->socket = dial();
        connection->producer_id = connection->epoch = -1;
        connection->partitions = calloc((size_t)options.partitions_per_request, sizeof(Partition));
        connection->began_ns = calloc((size_t)options.in_flight, sizeof(int64_t));
        int64_t first = (int64_t)number * options.partitions_per_request;
        for (int place = 0; place < options.partitions_per_request; place++)
            connection->partitions[place] =
                (Partition){.number = (int)((first + place) % options.partitions), .is_new = true};
        if (!options.fetches && !options.plain)
            get_producer_id(connection);
        if (!options.fetches)
            write_produce(connection);
        connection->sent = connection->request.size;
        connection->next_number = (uint64_t)number;
        watch(connection, EPOLL_CTL_ADD, false);
    }
}

// What was due and not sent has waited until now: without these, an overloaded broker would look fast.
static void drop_due_requests(void)
{
    for (int number = 0; number < options.connections; number++)
        for (Connection *connection = connections + number; due_ns(connection) < end_ns; unsent++) {
            note_latency(end_ns - due_ns(connection));
            connection->next_number += (uint64_t)options.connections;
        }
}

static void set_alarm(void)
{
    static int64_t set_ns;
    if (alarm_ns == set_ns)
        return;
    struct itimerspec time = {.it_value = {alarm_ns / SECOND_NS, alarm_ns % SECOND_NS}};
    if (timerfd_settime(alarm_clock, TFD_TIMER_ABSTIME, &time, NULL) != 0)
        fail("timerfd_settime: %s", strerror(errno));
    set_ns = alarm_ns;
}

// What the clock brings: requests that become due, and the end.
static void pass_time(void)
{
    int64_t time_ns = now_ns();
    if (is_over && time_ns >= alarm_ns)
        fail("Some requests were not answered %" PRId64 " s after the end.", DRAIN_NS / SECOND_NS);
    if (!is_over && time_ns >= end_ns) {
        is_over = true;
        over_ns = time_ns;
        alarm_ns = end_ns + DRAIN_NS;
        if (options.rate > 0)
            drop_due_requests();
    } else if (!is_over && time_ns >= alarm_ns) {
        alarm_ns = end_ns;
        for (int number = 0; number < options.connections; number++)
            send_requests(connections + number);
    }
    set_alarm();
}

static void handle(const struct epoll_event *event)
{
    Connection *connection = event->data.ptr;
    if (connection == NULL) {
        uint64_t rings;
        if (read(alarm_clock, &rings, sizeof rings) < 0 && errno != EAGAIN)
            fail("The alarm cannot be read: %s", strerror(errno));
        return;
    }
    if (event->events & ~(uint32_t)EPOLLOUT)
        receive_answers(connection);
    send_requests(connection);
}

// Until the time is over and everything that was sent is answered. Returns the seconds of the load.
static double run(void)
{
    struct epoll_event events[64];
    begin_ns = now_ns();
    end_ns = begin_ns + (int64_t)(options.seconds * 1e9);
    alarm_ns = begin_ns; // which sends what each connection begins with
    for (pass_time(); !is_over || unanswered > 0; pass_time()) {
        int count = epoll_wait(epoll, events, 64, -1);
        for (int place = 0; place < count; place++)
            handle(events + place);
    }
    return (double)(over_ns - begin_ns) / 1e9;
}

static double cpu_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

// Rates are those of the load's time; `requests`, `records` and `bytes` have what was answered after it, too.
static void report(double seconds)
{
    printf("{\"seconds\": %.6f, \"requests\": %" PRIu64 ", \"records\": %" PRIu64 ", \"bytes\": %" PRIu64
           ", \"requests_per_s\": %.1f, \"records_per_s\": %.1f, \"bytes_per_s\": %.1f"
           ", \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f"
           ", \"errors\": %" PRIu64 ", \"first_error\": %d, \"unsent\": %" PRIu64 ", \"client_cpu_s\": %.3f}\n",
           seconds, all.requests, all.records, all.bytes, (double)in_time.requests / seconds,
           (double)in_time.records / seconds, (double)in_time.bytes / seconds, percentile_us(0.5),
           percentile_us(0.99), percentile_us(0.999), (double)slowest_ns / 1000, errors, first_error, unsent,
           cpu_seconds());
}

int main(int count, char **arguments)
{
    read_options(count, arguments);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    alarm_clock = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll < 0 || alarm_clock < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, alarm_clock, &event) != 0)
        fail("No epoll or no timer: %s", strerror(errno));
    open_connections();
    report(run());
    return 0;
}
