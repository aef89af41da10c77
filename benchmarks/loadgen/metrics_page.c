#include "metrics_page.h"

#include <stdio.h>

#define LABELS "engine=\"0\",model_name=\"fake\""

static const char *const HISTOGRAMS[] = {
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_inference_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "request_params_max_tokens",
    "iteration_tokens_total",
    "request_max_num_generation_tokens",
    "request_time_per_output_token_seconds",
    "request_params_n",
};

static int metrics_page_histogram(char *at, const char *name)
{
    int n = sprintf(at, "# HELP vllm:%s Histogram.\n# TYPE vllm:%s histogram\n", name, name);
    for (int bucket = 0; bucket < 36; bucket++)
        n += sprintf(at + n, "vllm:%s_bucket{" LABELS ",le=\"%d.0\"} 0.0\n", name,
                     1 << (bucket % 30));
    n += sprintf(at + n, "vllm:%s_bucket{" LABELS ",le=\"+Inf\"} 0.0\n", name);
    return n + sprintf(at + n, "vllm:%s_count{" LABELS "} 0.0\nvllm:%s_sum{" LABELS "} 0.0\n", name,
                       name);
}

size_t metrics_page_write(char *page, size_t running)
{
    int n = sprintf(
        page,
        "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{" LABELS "} %zu.0\n"
        "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{" LABELS "} 0.0\n"
        "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{" LABELS "} 0.1\n"
        "# TYPE vllm:prefix_cache_queries_total counter\nvllm:prefix_cache_queries_total{" LABELS
        "} 0.0\n"
        "# TYPE vllm:prefix_cache_hits_total counter\nvllm:prefix_cache_hits_total{" LABELS
        "} 0.0\n"
        "# TYPE vllm:cache_config_info "
        "gauge\nvllm:cache_config_info{block_size=\"16\",engine=\"0\","
        "num_gpu_blocks=\"62500\"} 1.0\n",
        running);
    for (size_t i = 0; i < sizeof HISTOGRAMS / sizeof *HISTOGRAMS; i++)
        n += metrics_page_histogram(page + n, HISTOGRAMS[i]);
    return (size_t)n;
}
