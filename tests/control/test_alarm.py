import asyncio
import time

from headrace.control.alarm import GAP_S, Alarm
from headrace.core.segment import Segment


def in_loop(work):
    segment = Segment.create(1, 0)

    async def main():
        alarm = Alarm(segment.alarm_fd)
        try:
            return await work(segment, alarm)
        finally:
            alarm.close()

    return asyncio.run(main())


def test_without_an_alarm_the_time_passes():
    async def work(segment, alarm):
        began = time.monotonic()
        await alarm.wait(0.05)
        return time.monotonic() - began

    assert in_loop(work) >= 0.049


def test_an_alarm_of_another_process_ends_the_wait():
    async def work(segment, alarm):
        other = Segment.attach(segment.fd, segment.alarm_fd)
        asyncio.get_running_loop().call_later(0.01, other.alarm)
        await asyncio.wait_for(alarm.wait(60), 10)

    in_loop(work)


def test_an_alarm_between_two_waits_is_not_lost():
    async def work(segment, alarm):
        await alarm.wait(0)
        segment.alarm()
        await asyncio.wait_for(alarm.wait(60), 10)

    in_loop(work)


def test_a_storm_of_alarms_wakes_at_a_bounded_rate():
    async def work(segment, alarm):
        async def storm():
            while True:
                segment.alarm()
                await asyncio.sleep(0)

        storming = asyncio.ensure_future(storm())
        looks, began = 0, time.monotonic()
        while time.monotonic() - began < 20 * GAP_S:
            await alarm.wait(60)
            looks += 1
        storming.cancel()
        return looks

    assert 2 <= in_loop(work) <= 21


def test_a_closed_alarm_never_listens_again():
    async def work(segment, alarm):
        await alarm.wait(0)
        segment.alarm()
        await asyncio.sleep(0)  # it has heard it, and is deaf until the gap is over
        alarm.close()
        await asyncio.sleep(2 * GAP_S)
        return asyncio.get_running_loop().remove_reader(segment.alarm_fd)

    assert in_loop(work) is False


def test_a_segment_without_an_eventfd_takes_alarms_in_silence():
    segment = Segment.create(1, 0)
    other = Segment.attach(segment.fd)
    assert other.alarm_fd == -1
    other.alarm()
