"""Brings the members in line with the wanted list: joins, drains, returns and removals.

A replica that is no longer wanted drains first; its running requests end or the drain times out,
and only then is it forgotten. The same URL wanted again in the meantime is the same member.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headrace.config import ReplicaConfig
from headrace.control.states import Cause, Mode

if TYPE_CHECKING:
    from headrace.control.loop import Control
    from headrace.control.registry import Member


def apply(control: Control) -> None:
    """Make the members match the merged list of all sources."""
    wanted = control.sources.wanted.merged()
    members = control.registry.members
    has_changed = False
    for replica_id, replica in wanted.items():
        member = members.get(replica_id)
        if member is None:
            has_changed |= control.join(replica) is not None
        else:
            has_changed |= update(control, member, replica)
    for replica_id in members.keys() & wanted.keys():
        hold(control, members[replica_id])
    for replica_id in members.keys() - wanted.keys():
        leave(control, members[replica_id])
    if has_changed:
        control.publish()
    control.exporters.update()


def update(control: Control, member: Member, replica: ReplicaConfig) -> bool:
    """Take over the settings of a member that is wanted, still or again; True if they changed."""
    if not member.is_wanted:
        member.is_wanted = True
        member.health.rejoin(time.monotonic_ns())
    has_changed = member.config != replica
    if has_changed:
        member.take_config(replica)
    control.refresh(member)
    return has_changed


def hold(control: Control, member: Member) -> None:
    """Drain a member for as long as its entry says so."""
    reason = member.config.drain or ""
    if reason != member.health.held:
        timeout_s = control.config.server.drain_timeout_s
        member.health.hold(reason, time.monotonic_ns(), timeout_s)
        control.refresh(member)


def leave(control: Control, member: Member) -> None:
    """Begin to drain a member that nobody wants any more."""
    if member.is_wanted:
        member.is_wanted = False
        timeout_s = control.config.server.drain_timeout_s
        member.health.drain(Cause.REMOVED, "removed", time.monotonic_ns(), timeout_s)
        control.refresh(member)


def sweep(control: Control) -> None:
    """Forget the unwanted members whose drain is over."""
    for member in list(control.registry.members.values()):
        if not member.is_wanted and member.health.mode is Mode.DRAINED:
            control.forget(member)
