// The command line.

#pragma once
#include <getopt.h>
#include <limits.h>

#include "wire.h"

static struct {
    bool fetches, plain, sessions;
    int port, connections, in_flight, records, value_bytes, partitions, partitions_per_request, max_bytes;
    double seconds, rate;
    const char *topic;
} options = {
    .connections = 1, .in_flight = 1, .records = 1, .value_bytes = 100, .partitions = 1,
    .partitions_per_request = 1, .max_bytes = 1 << 20, .seconds = 1,
};

static int whole(const char *name, const char *text, int lowest, int highest)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < lowest || value > highest)
        fail("--%s is %s; it takes a whole number from %d to %d.", name, text, lowest, highest);
    return (int)value;
}

static double positive(const char *name, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (*end != '\0' || !(value > 0 && value < 1e9))
        fail("--%s is %s; it takes a number above 0.", name, text);
    return value;
}

static void read_options(int count, char **arguments)
{
    static const struct {
        const char *name;
        int *value, lowest, highest;
    } numbers[] = {
        {"port", &options.port, 1, 65535},
        {"connections", &options.connections, 1, 10000},
        {"in-flight", &options.in_flight, 1, 1000},
        {"records", &options.records, 1, 1000000},
        {"value-bytes", &options.value_bytes, 0, 1 << 28},
        {"partitions", &options.partitions, 1, 1000000},
        {"partitions-per-request", &options.partitions_per_request, 1, 1000000},
        {"max-bytes", &options.max_bytes, 1, INT_MAX},
    };
    enum { NUMBERS = sizeof numbers / sizeof *numbers, TOPIC = NUMBERS, SECONDS, RATE, PLAIN, SESSIONS, ALL };
    struct option known[ALL + 1] = {
        [TOPIC] = {"topic", required_argument, NULL, TOPIC},   [SECONDS] = {"seconds", required_argument, NULL, SECONDS},
        [RATE] = {"rate", required_argument, NULL, RATE},      [PLAIN] = {"plain", no_argument, NULL, PLAIN},
        [SESSIONS] = {"sessions", no_argument, NULL, SESSIONS},
    };
    for (int place = 0; place < NUMBERS; place++)
        known[place] = (struct option){numbers[place].name, required_argument, NULL, place};
    for (int found; (found = getopt_long(count, arguments, "", known, NULL)) != -1;) {
        if (found < 0 || found >= ALL)
            exit(2); // getopt has said why
        if (found < NUMBERS)
            *numbers[found].value = whole(numbers[found].name, optarg, numbers[found].lowest, numbers[found].highest);
        else if (found == TOPIC)
            options.topic = optarg;
        else if (found == SECONDS)
            options.seconds = positive("seconds", optarg);
        else if (found == RATE)
            options.rate = positive("rate", optarg);
        else if (found == PLAIN)
            options.plain = true;
        else
            options.sessions = true;
    }
    const char *work = optind == count - 1 ? arguments[optind] : "";
    options.fetches = strcmp(work, "fetch") == 0;
    if (!options.fetches && strcmp(work, "produce") != 0)
        fail("Say what to do: load_generator produce ... or load_generator fetch ...");
    if (options.port == 0 || options.topic == NULL)
        fail("--port and --topic are needed.");
    if (options.partitions_per_request > options.partitions)
        fail("--partitions-per-request is more than --partitions.");
    if (options.sessions && (!options.fetches || options.in_flight > 1))
        fail("--sessions is for fetch, with --in-flight 1: a session has one request at a time.");
    if (options.plain && options.fetches)
        fail("--plain is for produce: no producer id, no sequence.");
}
