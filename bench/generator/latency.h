// The clock, and latencies: counted in buckets that are at most 1/128 of their value wide.

#pragma once
#include <stdint.h>
#include <time.h>

static const int64_t SECOND_NS = 1000000000;

static int64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * SECOND_NS + time.tv_nsec;
}

static int64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

enum { FINE_BITS = 8, FINE = 1 << FINE_BITS };

static uint64_t buckets[(64 - FINE_BITS) * FINE];
static int64_t slowest_ns;

static void note_latency(int64_t latency_ns)
{
    uint64_t value = latency_ns > 0 ? (uint64_t)latency_ns : 0;
    int shift = value < FINE ? 0 : 64 - __builtin_clzll(value) - FINE_BITS;
    buckets[((uint64_t)shift << (FINE_BITS - 1)) + (value >> shift)]++;
    if (latency_ns > slowest_ns)
        slowest_ns = latency_ns;
}

// In microseconds: the middle of the bucket that the share falls into.
static double percentile_us(double share)
{
    uint64_t count = 0, seen = 0;
    const int last = (int)(sizeof buckets / sizeof *buckets) - 1;
    for (int place = 0; place <= last; place++)
        count += buckets[place];
    if (count == 0)
        return 0;
    for (int place = 0; place <= last; place++) {
        seen += buckets[place];
        if ((double)seen >= share * (double)count) {
            int shift = place < FINE ? 0 : (place >> (FINE_BITS - 1)) - 1;
            uint64_t fine = (uint64_t)place - ((uint64_t)shift << (FINE_BITS - 1));
            double middle_ns = (double)((fine << shift) + ((1ull << shift) >> 1));
            return (middle_ns < (double)slowest_ns ? middle_ns : (double)slowest_ns) / 1000;
        }
    }
    return (double)slowest_ns / 1000;
}
