/* Records that a process sends up through its ring (ring.h): fixed part first, then `text_bytes`
 * bytes of text. logline.h makes a line of the access log of one. */
#ifndef HEADRACE_RECORD_H
#define HEADRACE_RECORD_H

#include <stdint.h>

enum record_kind { RECORD_ACCESS = 1 };

enum { ACCESS_TEXT_BYTES = 512 }; /* at most */

/* One finished request. Times in ns, 0 or -1 where unknown. Text: the request id; with tracing, a
 * line feed and `trace id-span id-parent span id` in hex (32, 16, 16 digits; a parent of zeros:
 * none) follow. */
struct access_record {
    uint64_t end_unix_ns;
    uint64_t duration_ns;
    uint64_t queue_wait_ns;
    uint64_t ttft_ns;
    uint64_t bytes_in;
    uint64_t bytes_out;
    double estimated_prompt_tokens;
    int64_t prompt_tokens;     /* -1: unknown */
    int64_t completion_tokens; /* -1: unknown */
    int64_t cached_tokens;     /* -1: unknown */
    double tpot_s;             /* 0: unknown */
    double matched_tokens;     /* of the prompt, in the replica's cache as routing saw it */
    double score;              /* of the replica; what it means is the policy's matter */
    int32_t slot;              /* -1: none */
    uint32_t generation;       /* of the slot */
    uint16_t model;
    uint16_t status;
    uint16_t reason;
    uint16_t text_bytes;
    uint8_t endpoint;
    uint8_t outcome;
    uint8_t retries;
    uint8_t stream;
    uint32_t output_limit; /* max_tokens of the request; 0: none */
};

enum { ACCESS_BYTES = sizeof(struct access_record) + ACCESS_TEXT_BYTES }; /* of a whole record */

#endif
