from headrace.control.autoscale.victims import key


def test_sick_replicas_go_first_then_idle_ones_then_those_with_cold_caches():
    ranked = sorted(
        [
            ("busy", key("ready", 9, 0.0)),
            ("warm", key("ready", 1, 0.5)),
            ("cold", key("ready", 1, 0.1)),
            ("slow", key("degraded", 20, 0.9)),
            ("dead", key("ejected", 0, 0.0)),
        ],
        key=lambda pair: pair[1],
    )
    assert [name for name, _ in ranked] == ["dead", "slow", "cold", "warm", "busy"]
