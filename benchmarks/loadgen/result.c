#include "result.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

static void result_print_count(const char *name, uint64_t count)
{
    printf("\"%s\":%" PRIu64 ",", name, count);
}

static double us(uint64_t ns) { return (double)ns / 1000; }

static void result_print_latency(const char *name, const struct latency *latency)
{
    printf("\"%s\":{\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"max\":%.1f},", name,
           us(latency_percentile_ns(latency, .5)), us(latency_percentile_ns(latency, .9)),
           us(latency_percentile_ns(latency, .99)), us(latency->max_ns));
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

void result_print(const struct result *result, double duration_s)
{
    printf("{");
    result_print_count("sent", result->sent);
    result_print_count("completed", result->completed);
    result_print_count("bad_status", result->bad_status);
    result_print_count("bad_body", result->bad_body);
    result_print_count("broken", result->broken);
    result_print_count("cut", result->cut);
    result_print_count("lost", result->lost);
    result_print_count("events", result->events);
    result_print_count("body_bytes", result->body_bytes);
    result_print_count("reads", result->reads);
    result_print_latency("latency_us", &result->latency);
    result_print_latency("first_byte_us", &result->first_byte);
    printf("\"duration_s\":%.3f,\"requests_per_s\":%.1f,\"cpu_s\":%.3f}\n", duration_s,
           (double)result->completed / duration_s, cpu_seconds());
}

int result_is_good(const struct result *result)
{
    return result->bad_status + result->bad_body + result->broken + result->lost == 0;
}
