// Fields of Kafka's messages: written to a buffer that grows, and read with every length checked.

#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char CLIENT_ID[] = "load-generator";
enum { CORRELATION_AT = 8 };
// Where the fields of a record batch are that change with each request, or are read.
enum { LENGTH_AT = 8, CRC_AT = 17, CHECKED_FROM = 21, LAST_DELTA_AT = 23, BASE_TIME_AT = 27, MAX_TIME_AT = 35 };
enum { SEQUENCE_AT = 53, COUNT_AT = 57, BATCH_HEADER = 61 };

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

typedef struct {
    uint8_t *bytes;
    size_t size, room;
} Buffer;

static void reserve(Buffer *buffer, size_t more)
{
    if (buffer->room - buffer->size >= more)
        return;
    buffer->room = 2 * buffer->room > buffer->size + more ? 2 * buffer->room : buffer->size + more;
    buffer->bytes = realloc(buffer->bytes, buffer->room);
    if (buffer->bytes == NULL)
        fail("There is no memory for %zu bytes.", buffer->room);
}

static void set_int(uint8_t *at, int width, int64_t value)
{
    for (int place = width - 1; place >= 0; place--, value >>= 8)
        at[place] = (uint8_t)value;
}

static int64_t get_int(const uint8_t *at, int width)
{
    int64_t value = (int8_t)at[0];
    for (int place = 1; place < width; place++)
        value = (int64_t)((uint64_t)value << 8 | at[place]);
    return value;
}

static void put_bytes(Buffer *buffer, const void *bytes, size_t size)
{
    reserve(buffer, size);
    memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
}

static void put_int(Buffer *buffer, int width, int64_t value)
{
    uint8_t bytes[8];
    set_int(bytes, width, value);
    put_bytes(buffer, bytes, (size_t)width);
}

static void put_varint(Buffer *buffer, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        put_int(buffer, 1, (int64_t)(value | 128));
    put_int(buffer, 1, (int64_t)value);
}

static void put_signed_varint(Buffer *buffer, int64_t value)
{
    put_varint(buffer, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

static void put_compact(Buffer *buffer, const void *bytes, size_t size)
{
    put_varint(buffer, size + 1);
    put_bytes(buffer, bytes, size);
}

static void put_no_tags(Buffer *buffer) { put_varint(buffer, 0); }

// A request without its length, which `end_request` knows.
static void begin_request(Buffer *buffer, int key, int version, bool is_flexible)
{
    buffer->size = 0;
    put_int(buffer, 4, 0);
    put_int(buffer, 2, key);
    put_int(buffer, 2, version);
    put_int(buffer, 4, 0); // the correlation id
    put_int(buffer, 2, (int64_t)strlen(CLIENT_ID));
    put_bytes(buffer, CLIENT_ID, strlen(CLIENT_ID));
    if (is_flexible)
        put_no_tags(buffer);
}

static void end_request(Buffer *buffer) { set_int(buffer->bytes, 4, (int64_t)buffer->size - 4); }

typedef struct {
    const uint8_t *at, *end;
} Reader;

static const uint8_t *take(Reader *reader, uint64_t size)
{
    if (size > (uint64_t)(reader->end - reader->at))
        fail("An answer of the broker ends in the middle of a field.");
    reader->at += size;
    return reader->at - size;
}

static int64_t take_int(Reader *reader, int width) { return get_int(take(reader, (uint64_t)width), width); }

static uint64_t take_varint(Reader *reader)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t byte = *take(reader, 1);
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return value;
    }
    fail("An answer of the broker has a number of more than 64 bits.");
}

// The length of a compact string, of bytes or of an array; that of null is 0.
static uint64_t take_length(Reader *reader)
{
    uint64_t length = take_varint(reader);
    return length ? length - 1 : 0;
}

static void skip_compact(Reader *reader) { take(reader, take_length(reader)); }

static void skip_tags(Reader *reader)
{
    for (uint64_t left = take_varint(reader); left > 0; left--) {
        take_varint(reader);
        take(reader, take_varint(reader));
    }
}

// -- the CRC-32C of a batch, by the processor where it can

#if defined(__x86_64__)
#define CRC_TARGET __attribute__((target("sse4.2")))
#define CRC_OF_8(crc, value) (uint32_t) __builtin_ia32_crc32di(crc, value)
#define CRC_OF_1(crc, value) __builtin_ia32_crc32qi(crc, value)
#elif defined(__aarch64__)
#define CRC_TARGET __attribute__((target("+crc")))
#define CRC_OF_8(crc, value) __builtin_aarch64_crc32cx(crc, value)
#define CRC_OF_1(crc, value) __builtin_aarch64_crc32cb(crc, value)
#else
#define CRC_TARGET
#define CRC_OF_1(crc, value) bitwise_crc(crc, value)
static uint32_t bitwise_crc(uint32_t crc, uint8_t value)
{
    crc ^= value;
    for (int bit = 0; bit < 8; bit++)
        crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    return crc;
}
#endif

CRC_TARGET static uint32_t crc32c(const uint8_t *bytes, size_t size)
{
    uint32_t crc = ~0u;
#ifdef CRC_OF_8
    for (; size >= 8; bytes += 8, size -= 8) {
        uint64_t value;
        memcpy(&value, bytes, 8);
        crc = CRC_OF_8(crc, value);
    }
#endif
    for (; size > 0; bytes++, size--)
        crc = CRC_OF_1(crc, *bytes);
    return ~crc;
}
