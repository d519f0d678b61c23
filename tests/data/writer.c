/* Writes a recording with nothing but the C library, from docs/formats.md: three episodes of a machine with two
 * observations and one action. Everything is put down byte by byte, so it does not matter how this machine orders
 * bytes or pads structures. `writer PATH [BYTES]` stops after so many bytes, as a power cut would. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OBSERVATIONS 2
#define ACTIONS 1
#define RECORD (40 + 4 * (OBSERVATIONS + 3 * ACTIONS))
#define LIMITER 1
#define HUMAN 3
#define TERMINATED 1
#define TRUNCATED 2
#define CLOSING 4

static FILE *file;
static long left;
static uint64_t count;

static uint32_t crc(const unsigned char *data, size_t size) {
    uint32_t sum = 0xFFFFFFFFu;
    for (size_t i = 0; i < size; i++) {
        sum ^= data[i];
        for (int bit = 0; bit < 8; bit++) sum = sum & 1 ? sum >> 1 ^ 0xEDB88320u : sum >> 1;
    }
    return sum ^ 0xFFFFFFFFu;
}

static unsigned char *put(unsigned char *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) *at++ = (unsigned char)(value >> 8 * i);
    return at;
}

static unsigned char *put_float(unsigned char *at, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return put(at, bits, 4);
}

static unsigned char *put_double(unsigned char *at, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return put(at, bits, 8);
}

static void append(const unsigned char *data, size_t size) {
    size_t some = (long)size < left ? size : (size_t)left;
    fwrite(data, 1, some, file);
    fflush(file); /* a controller calls fdatasync here */
    left -= (long)some;
    if (some < size) exit(0);
}

static void header(const char *json) {
    size_t n = strlen(json);
    unsigned char *data = malloc(16 + n + 4), *at = data;
    memcpy(at, "MUSBOREC", 8);
    at = put(put(at + 8, 1, 4), n, 4);
    memcpy(at, json, n);
    put(at + n, crc(data, 16 + n), 4);
    append(data, 16 + n + 4);
    free(data);
}

static void record(uint32_t episode, uint32_t step, int source, int flags, float reward, const float *seen,
                   float commanded, float executed, float noise) {
    unsigned char data[RECORD], *at = data;
    at = put(at, count, 8);
    at = put_double(at, 1.7e9 + 0.5 * (double)count++);
    at = put(put(at, episode, 4), step, 4);
    at = put(put(put(at, (uint64_t)source, 1), (uint64_t)flags, 1), 0, 2);
    at = put_float(put_float(at, reward), 0.0f);
    for (int i = 0; i < OBSERVATIONS; i++) at = put_float(at, seen[i]);
    at = put_float(put_float(put_float(at, commanded), executed), noise);
    put(at, crc(data, RECORD - 4), 4);
    append(data, RECORD);
}

int main(int count_of_words, char **words) {
    static const int lengths[] = {4, 3, 2};
    file = fopen(words[1], "wb");
    if (!file) return 1;
    left = count_of_words > 2 ? atol(words[2]) : 1000000;
    header("{\"format\": \"musbo-recording\", \"version\": 1, \"bundle\": \"c-bundle\", \"machine\": \"press-7\", "
           "\"obs\": [\"level\", \"flow\"], \"act\": [\"valve\"]}");
    for (uint32_t episode = 0; episode < 3; episode++) {
        float seen[OBSERVATIONS] = {(float)episode, 0.0f};
        for (uint32_t step = 0; step < (uint32_t)lengths[episode]; step++) {
            float wanted = 0.25f * (float)step, done = step == 2 ? 0.125f : wanted;
            int source = episode == 1 ? HUMAN : step == 2 ? LIMITER : 0;
            record(episode, step, source, 0, -seen[1], seen, wanted, done, 0.0625f);
            seen[1] += done + 1.0f;
        }
        if (episode < 2) /* the last episode is cut off without an end */
            record(episode, (uint32_t)lengths[episode], 0, CLOSING | (episode ? TRUNCATED : TERMINATED), NAN, seen, NAN,
                   NAN, NAN);
    }
    return fclose(file);
}
