"""Samples and runs made up for tests."""

from headrace.bench.load import Run, Target
from headrace.bench.samples import Sample


def sample(due_s=0.0, ttft_s=0.1, tokens=11, tpot_s=0.02, **more):
    first = due_s + ttft_s
    last = first + (tokens - 1) * tpot_s
    return Sample(
        due_s,
        due_s,
        100,
        first_token_s=first,
        last_token_s=last,
        end_s=last,
        output_tokens=tokens,
        **more,
    )


def run_of(samples, duration_s=10.0):
    run = Run(Target("http://unused"))
    for one in samples:
        run.record.start(one.sent_s)
        if one.first_token_s is not None:
            run.record.first_token(one.first_token_s)
        run.record.finish(one, one.end_s)
    run.duration_s, run.cpu_s = duration_s, 1.0
    return run
