"""Children that nobody waits for, seen from the process that they fell to."""

import os
import time

from headrace import orphans


def ended_child():
    """The id of a child that has ended and was not waited for."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid


def is_in_the_process_table(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_orphans_leave_the_process_table_and_own_children_are_left_to_the_loop():
    orphan = ended_child()
    running = os.fork()
    if running == 0:
        time.sleep(60)
        os._exit(0)
    try:
        assert orphans.reap({running}) == 1
        assert not is_in_the_process_table(orphan)
        own = ended_child()
        assert orphans.reap({running, own}) == 0
        assert os.waitpid(own, 0) == (own, 0)
    finally:
        os.kill(running, 9)
        os.waitpid(running, 0)


def test_without_children_there_is_nothing_to_do():
    assert orphans.reap(set()) == 0
