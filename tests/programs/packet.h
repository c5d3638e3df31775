/* Builds packets as the injected library sends them, without its checks. */
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { PACKET = 32 * 1024, VERSION = 10, HELLO = 1 };

static uint8_t packet[PACKET];
static int length;

static void put(const void *bytes, int count) {
    memcpy(packet + length, bytes, count);
    length += count;
}

static void put8(uint8_t value) { put(&value, 1); }
static void put16(uint16_t value) { put(&value, 2); }
static void put32(uint32_t value) { put(&value, 4); }
static void put64(uint64_t value) { put(&value, 8); }

/* The first message of a session: its id is random. */
static void put_hello(void) {
    uint64_t session;
    getrandom(&session, sizeof(session), 0);
    put8(HELLO), put16(VERSION), put32(getpid()), put64(session), put32(26), put32(13000), put64(0);
}
