#define _GNU_SOURCE
#include "chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char WORDS[] =
    "the river bends below the mill and the water finds its way through the gate to the wheel, ";

static void chat_fill(char *at, size_t length)
{
    for (size_t done = 0; done < length; done += sizeof WORDS - 1) {
        size_t piece = length - done < sizeof WORDS - 1 ? length - done : sizeof WORDS - 1;
        memcpy(at + done, WORDS, piece);
    }
}

struct chat_request chat_request_new(size_t length, int stream)
{
    static const char front[] =
        "{\"model\":\"" CHAT_MODEL "\",\"messages\":[{\"role\":\"user\",\"content\":\"";
    const char *back =
        stream
            ? "\"}],\"max_tokens\":100,\"stream\":true,\"stream_options\":{\"include_usage\":true}}"
            : "\"}],\"max_tokens\":100}";
    size_t front_bytes = sizeof front - 1, back_bytes = strlen(back);
    struct chat_request request = {.length = length, .serial_at = front_bytes};
    request.body = malloc(length + 1);
    memcpy(request.body, front, front_bytes);
    chat_fill(request.body + front_bytes, length - front_bytes - back_bytes);
    memcpy(request.body + length - back_bytes, back, back_bytes + 1);
    chat_request_number(&request, 0);
    return request;
}

void chat_request_number(struct chat_request *request, uint64_t serial)
{
    static const char digits[] = "0123456789abcdef";
    char *at = request->body + request->serial_at;
    for (int i = 0; i < CHAT_SERIAL_BYTES; i++)
        at[i] = digits[serial >> (60 - 4 * i) & 15];
}

int chat_request_matches(const struct chat_request *request, const char *body, size_t length)
{
    size_t rest = request->serial_at + CHAT_SERIAL_BYTES;
    return length == request->length && memcmp(body, request->body, request->serial_at) == 0 &&
           memcmp(body + rest, request->body + rest, length - rest) == 0;
}

struct chat_answer chat_answer_json(void)
{
    struct chat_answer answer = {.pieces = 1, .ends = malloc(sizeof *answer.ends)};
    char text[641] = {0};
    chat_fill(text, sizeof text - 1);
    int length = asprintf(
        &answer.body,
        "{\"id\":\"chatcmpl-00000000000000aa\",\"object\":\"chat.completion\",\"created\":"
        "1750000000,"
        "\"model\":\"" CHAT_MODEL
        "\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
        "\"content\":\"%s\",\"refusal\":null,\"annotations\":null},\"logprobs\":null,"
        "\"finish_reason\":\"length\",\"stop_reason\":null}],\"usage\":{\"prompt_tokens\":250,"
        "\"total_tokens\":350,\"completion_tokens\":100,\"prompt_tokens_details\":null}}",
        text);
    answer.body_length = (size_t)length;
    answer.ends[0] = (size_t)asprintf(&answer.wire,
                                      "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: %d\r\n"
                                      "content-type: application/json\r\n\r\n%s",
                                      length, answer.body);
    return answer;
}

static int chat_event(char *at, size_t room, size_t index, size_t events)
{
    static const char front[] =
        "data: {\"id\":\"chatcmpl-00000000000000aa\",\"object\":\"chat.completion.chunk\","
        "\"created\":1750000000,\"model\":\"" CHAT_MODEL "\",\"choices\":";
    if (index + 1 == events)
        return snprintf(at, room, "data: [DONE]\n\n");
    if (index + 2 == events)
        return snprintf(at, room,
                        "%s[],\"usage\":{\"prompt_tokens\":250,\"total_tokens\":%zu,"
                        "\"completion_tokens\":%zu}}\n\n",
                        front, events + 248, events - 2);
    return snprintf(at, room,
                    "%s[{\"index\":0,\"delta\":{\"content\":\" token number %05zu\"},"
                    "\"logprobs\":null,\"finish_reason\":%s,\"token_ids\":null}]}\n\n",
                    front, index, index + 3 == events ? "\"length\"" : "null");
}

struct chat_answer chat_answer_stream(size_t events)
{
    enum { EVENT_ROOM = 400 };
    struct chat_answer answer = {.pieces = events + 1,
                                 .ends = malloc((events + 1) * sizeof *answer.ends)};
    answer.body = malloc(events * EVENT_ROOM);
    answer.wire = malloc(events * EVENT_ROOM + 512);
    size_t wire = (size_t)sprintf(answer.wire, "HTTP/1.1 200 OK\r\nserver: uvicorn\r\n"
                                               "content-type: text/event-stream; charset=utf-8\r\n"
                                               "transfer-encoding: chunked\r\n\r\n");
    answer.ends[0] = wire;
    for (size_t i = 0; i < events; i++) {
        char *event = answer.body + answer.body_length;
        int length = chat_event(event, EVENT_ROOM, i, events);
        answer.body_length += (size_t)length;
        wire += (size_t)sprintf(answer.wire + wire, "%x\r\n%s\r\n%s", length, event,
                                i + 1 == events ? "0\r\n\r\n" : "");
        answer.ends[i + 1] = wire;
    }
    return answer;
}
