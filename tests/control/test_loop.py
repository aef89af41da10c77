import math

from fake_plane import until

from headrace.control.states import Traffic

LOAD = "vllm:num_requests_running{{}} {}\nvllm:num_requests_waiting{{}} {}\n"


def replicas(*some):
    return {"replicas": [{"url": one.url} for one in some]}


def test_a_good_replica_becomes_ready_and_its_models_are_published(run):
    async def scenario(replica, plane):
        one = await replica(models=["m", "n"])
        made = await plane(replicas(one))
        await until(lambda: made.state(one) == "ready")
        row = made.segment.row(made.member(one).slot)
        assert row["eligible"] and row["weight"] == 1.0
        assert sorted(made.member(one).cards) == ["m", "n"]
        assert made.segment.serving == 1

    run(scenario)


def test_cards_that_differ_only_in_made_up_fields_are_not_published_again(run):
    async def scenario(replica, plane):
        one = await replica()
        made = await plane(replicas(one))
        await until(lambda: made.state(one) == "ready")
        before, lists = made.segment.blob_generation, one.lists
        await until(lambda: one.lists >= lists + 4)
        assert made.segment.blob_generation == before
        one.models.append("n")
        await until(lambda: made.segment.blob_generation == before + 1)

    run(scenario)


def test_a_failing_health_page_ejects_and_a_good_one_readmits(run):
    async def scenario(replica, plane):
        one = await replica()
        made = await plane(replicas(one))
        await until(lambda: made.state(one) == "ready")
        one.health_status = 500
        await until(lambda: made.state(one) == "ejected")
        assert not made.segment.row(made.member(one).slot)["eligible"]
        assert "500" in made.member(one).reason
        one.health_status = 200
        await until(lambda: made.state(one) == "ready")
        assert [c["to"] for c in made.control.changes] == ["ready", "ejected", "ready"]

    run(scenario)


def test_a_replica_that_is_gone_is_ejected_and_comes_back_as_another_model(run):
    async def scenario(replica, plane):
        one = await replica()
        made = await plane(replicas(one))
        await until(lambda: made.state(one) == "ready")
        await one.stop()
        await until(lambda: made.state(one) == "ejected")
        one.models = ["other"]
        await one.start()
        await until(lambda: made.state(one) == "ready")
        assert sorted(made.member(one).cards) == ["other"]

    run(scenario)


def test_figures_of_the_engine_reach_the_row_and_grow_stale(run):
    async def scenario(replica, plane):
        one = await replica()
        one.metrics = LOAD.format(7, 3).encode() + b"vllm:kv_cache_usage_perc 0.5\n"
        made = await plane(replicas(one))
        row = lambda: made.segment.row(made.member(one).slot)  # noqa: E731
        await until(lambda: row()["running"] == 7)
        assert (row()["waiting"], row()["kv_usage"], row()["foreign_seqs"]) == (3, 0.5, 10)
        one.metrics_delay_s = 60
        await until(lambda: row()["running"] == -1)
        assert row()["waiting"] == -1 and math.isnan(row()["kv_usage"])

    run(scenario)


def test_a_hanging_page_delays_nobody_and_ejects_nobody(run):
    async def scenario(replica, plane):
        good, bad = await replica(), await replica()
        bad.metrics_delay_s = 60
        good.metrics = LOAD.format(1, 0).encode()
        made = await plane(replicas(good, bad))
        await until(lambda: made.state(bad) == made.state(good) == "ready")
        await until(lambda: good.seen.count("/metrics") >= 15, 4)
        assert bad.seen.count("/metrics") <= 4

    run(scenario)


def test_bad_samples_are_counted(run):
    async def scenario(replica, plane):
        one = await replica()
        one.metrics = b"vllm:num_requests_running -5\nvllm:num_requests_waiting 1\n"
        made = await plane(replicas(one))
        await until(lambda: made.control.tally.bad_samples["engine"] >= 2)
        assert made.segment.row(made.member(one).slot)["running"] == -1

    run(scenario)


def test_a_restarted_engine_gets_a_new_generation(run):
    async def scenario(replica, plane):
        one = await replica()
        page = LOAD.format(0, 0) + "process_start_time_seconds %d\n"
        one.metrics = (page % 100).encode()
        made = await plane(replicas(one))
        await until(lambda: made.member(one).engine.scraped_at_ns > 0)
        before = made.member(one).generation
        one.metrics = (page % 200).encode()
        await until(lambda: made.member(one).generation == before + 1)
        assert made.segment.row(made.member(one).slot)["generation"] == before + 1

    run(scenario)


def test_a_frozen_engine_is_found_by_the_probe_and_returns(run):
    async def scenario(replica, plane):
        one = await replica()
        settings = {"health": {"probe_interval_s": 0.1, "probe_timeout_s": 0.2, "eject_s": 0.1}}
        made = await plane({**replicas(one), **settings})
        await until(lambda: made.control.tally.probes)
        one.chat_delay_s = 60
        await until(lambda: made.state(one) == "ejected")
        assert "probe" in made.member(one).reason
        one.chat_delay_s = 0
        await until(lambda: made.state(one) == "ready")

    run(scenario)


def test_a_probe_that_is_turned_down_says_nothing(run):
    async def scenario(replica, plane):
        one = await replica()
        one.chat_status = 404
        made = await plane({**replicas(one), "health": {"probe_interval_s": 0.1}})
        await until(lambda: one.seen.count("/v1/chat/completions") >= 3)
        assert made.state(one) == "ready"
        one.chat_status = 429
        await until(lambda: one.seen.count("/v1/chat/completions") >= 6)
        assert made.state(one) == "ready"

    run(scenario)


XID = 'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="G"} 50\nDCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="G"} '


def test_a_gpu_fault_drains_its_replica_alone_and_undrain_is_final(run):
    async def scenario(replica, plane):
        one, other, exporter = await replica(), await replica(), await replica()
        exporter.metrics = f"{XID}0\n".encode()
        entries = [{"url": one.url, "dcgm_url": f"{exporter.url}/metrics"}, {"url": other.url}]
        made = await plane({"replicas": entries})
        await until(lambda: made.state(one) == "ready" and made.member(one).gpus)
        assert made.member(one).gpus[0].temp_celsius == 50
        exporter.metrics = f"{XID}79\n".encode()
        await until(lambda: made.state(one) in ("draining", "drained"))
        assert "Xid 79" in made.member(one).reason
        assert made.state(other) == "ready"
        made.member(one).health.undrain(0)
        await until(lambda: made.state(one) == "ready")
        seen = exporter.seen.count("/metrics")
        await until(lambda: exporter.seen.count("/metrics") > seen + 3)
        assert made.state(one) == "ready"

    run(scenario)


def test_figures_that_cannot_be_read_keep_their_last_value(run):
    async def scenario(replica, plane):
        one, exporter = await replica(), await replica()
        temp = 'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="G"} '
        exporter.metrics = f"{temp}64\n".encode()
        made = await plane({"replicas": [{"url": one.url, "dcgm_url": f"{exporter.url}/metrics"}]})
        await until(lambda: made.member(one).gpus)
        exporter.metrics = f"{temp}2147483632\n".encode()
        await until(lambda: made.control.tally.bad_samples["dcgm"] >= 2)
        assert made.member(one).gpus[0].temp_celsius == 64

    run(scenario)


def test_one_bad_turn_does_not_end_a_loop(run):
    async def scenario(replica, plane):
        one = await replica()
        made = await plane(replicas(one))
        await until(lambda: made.state(one) == "ready")
        member = made.member(one)
        member.health.take_traffic = lambda *_: 1 / 0
        await until(lambda: made.control.tally.errors["judging"] == 1)
        del member.health.take_traffic
        seen = made.control.evidence.cells
        await until(lambda: made.control.evidence.cells is not seen)
        member.health.take_traffic(Traffic(), 0)

    run(scenario)
