import logging

from libc.stdint cimport uint64_t

log = logging.getLogger("headrace.proxy")


cdef class Timed:
    def __cinit__(self):
        self.due_ns = NEVER

    cdef void on_due(self, uint64_t now_ns):
        raise NotImplementedError


cdef class Wheel:
    def __init__(self, uint64_t now_ns):
        cdef Timed head
        self.tick = now_ns // TICK_NS
        self.slots = []
        for _ in range(WHEEL_SLOTS):
            head = Timed()
            head.before = head.after = head
            self.slots.append(head)

    cdef void set(self, Timed entry, uint64_t due_ns):
        entry.due_ns = due_ns
        if due_ns == NEVER:
            return
        if entry.before is None:
            self._link(entry)
        elif due_ns // TICK_NS + 1 < entry.slot_tick:
            self._unlink(entry)
            self._link(entry)

    cdef void forget(self, Timed entry):
        entry.due_ns = NEVER
        if entry.before is not None:
            self._unlink(entry)

    cdef void advance(self, uint64_t now_ns):
        """Run everything that is due; after a long stall each slot once."""
        cdef Timed head
        cdef uint64_t last = now_ns // TICK_NS
        if last > self.tick + WHEEL_SLOTS:
            self.tick = last - WHEEL_SLOTS
        while self.tick < last:
            self.tick += 1
            head = <Timed>self.slots[self.tick % WHEEL_SLOTS]
            while head.after is not head:
                self._run(head.after, now_ns)

    cdef void _run(self, Timed entry, uint64_t now_ns):
        self._unlink(entry)
        if entry.due_ns == NEVER:
            return
        if entry.due_ns > now_ns:
            self._link(entry)
            return
        entry.due_ns = NEVER
        try:
            entry.on_due(now_ns)
        except Exception:
            log.exception("a deadline failed")

    cdef void _link(self, Timed entry):
        cdef Timed head
        cdef uint64_t tick = entry.due_ns // TICK_NS + 1
        tick = min(max(tick, self.tick + 1), self.tick + WHEEL_SLOTS - 1)
        entry.slot_tick = tick
        head = <Timed>self.slots[tick % WHEEL_SLOTS]
        entry.before, entry.after = head.before, head
        head.before.after = entry
        head.before = entry

    cdef void _unlink(self, Timed entry):
        entry.before.after = entry.after
        entry.after.before = entry.before
        entry.before = entry.after = None
