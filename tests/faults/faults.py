"""The faults: what breaks, and that it is over when the function returns."""

from __future__ import annotations

import re
import resource
import shutil
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tests.faults.scene import ALL, UPSTREAM_NAME, Scene, Setting
from tests.faults.traffic import KEY, LONG, until
from tests.integration.federation.sites import Site
from tests.lab.certificates import Certificate
from tests.lab.node import Node
from tests.lab.proxy import Proxy
from tests.lab.waiting import DEADLINE

BLACKHOLE: Final = 60.0 if ALL else 0.0
"""At least; it is noticed first."""
LONG_SILENT: Final = f" for {BLACKHOLE:g} s" if ALL else ""
NOTICED: Final = 2 * 10 + (12.0 if ALL else 35.0)
"""Two heartbeats of the default, and until the status is looked at."""
ALARM: Final = 10.0 if ALL else 3.0
THROTTLED: Final = 50 * 1024
GONE_FOR: Final = 5.0 if ALL else 2.0
KILLS: Final = 10 if ALL else 3
CUTS: Final = 50 if ALL else 10
NONE_FREE: Final = 3  # descriptors: all of them are in use by every process
USER: Final = "only-of-a-fault"
PLAIN: Final = Setting()


@dataclass(frozen=True, slots=True)
class Fault:
    """`shows`: a status that the link has meanwhile, and words of the reason; `runs_on`: it has no other than
    `running`; `may_show`: others that it may have for a moment. `drains`: what the fault deletes takes messages along,
    so nothing may wait there. `interruptions`: how often what is in flight may come again.
    """

    name: str
    do: Callable[[Scene], None]
    shows: tuple[str, str] | None = None
    runs_on: bool = False
    drains: bool = False
    interruptions: int = 1
    may_show: frozenset[str] = frozenset()
    setting: Setting = PLAIN


@dataclass(frozen=True, slots=True)
class Series:
    """Faults that one link meets, one after another; its `setting` is what all of them need."""

    name: str
    faults: tuple[Fault, ...] = ()
    setting: Setting = PLAIN


def alone(fault: Fault) -> Series:
    return Series(fault.name, (fault,), fault.setting)


def kill_agent(times: int, scene: Scene) -> None:
    for _ in range(times):
        scene.agent.kill()
        scene.start_agent()
        assert until(lambda: scene.is_running, DEADLINE)


def kill_agent_and_cut(scene: Scene) -> None:
    kill_agent(1, scene)
    scene.to_up.cut()
    scene.to_down.cut()


def stop_agent(scene: Scene) -> None:
    assert scene.agent.terminate() == 0
    scene.start_agent()


def restart(of: Callable[[Scene], Site], scene: Scene) -> None:
    node = of(scene).node
    node.stop()
    scene.wait_shown("backoff")
    node.start()


def kill(of: Callable[[Scene], Site], scene: Scene) -> None:
    node = of(scene).node
    node.kill()
    scene.wait_shown("backoff")
    node.start()


def cut(of: Callable[[Scene], Proxy], scene: Scene) -> None:
    for _ in range(CUTS):
        of(scene).cut()
        time.sleep(0.2)


def blackhole(of: Callable[[Scene], Proxy], scene: Scene) -> None:
    began = time.monotonic()
    of(scene).blackhole()
    assert until(lambda: scene.is_down, NOTICED), "it isn't noticed within two heartbeats"
    scene.wait_shown("backoff", "received")
    time.sleep(max(0.0, began + BLACKHOLE - time.monotonic()))
    of(scene).restore()


def throttle(of: Callable[[Scene], Proxy], scene: Scene) -> None:
    of(scene).throttle(THROTTLED)
    time.sleep(GONE_FOR)
    of(scene).throttle(None)


def alarm(
    of: Callable[[Scene], Site], begin: Callable[[Node], object], end: Callable[[Node], object], scene: Scene
) -> None:
    """Messages come while it is in force, however long it takes to begin: a connection that publishes nothing isn't
    blocked.
    """
    node = of(scene).node
    scene.traffic.hold()
    begin(node)
    try:
        scene.traffic.go_on()
        time.sleep(ALARM)
        if of is downstream:
            scene.wait_shown("blocked")
    finally:
        end(node)


def delete_upstream_queue(scene: Scene) -> None:
    scene.up.delete_queue(scene.queue)


def delete_internal_exchange(scene: Scene) -> None:
    scene.up.delete_exchange(scene.internal_exchange)


def delete_upstream_exchange(scene: Scene) -> None:
    scene.up.delete_exchange()
    time.sleep(1)
    scene.up.exchange()


def delete_downstream_exchange(scene: Scene) -> None:
    scene.down.delete_exchange()
    time.sleep(GONE_FOR)
    scene.down.exchange().bind(KEY)


def take_permissions(of: Callable[[Scene], Site], scene: Scene) -> None:
    """They are looked at for each channel, so the connections are closed too, and when messages come, which wait for
    that: `rabbitmqctl` may take longer than all of them."""
    site = of(scene)
    scene.traffic.hold()
    site.node.admin.permissions(site.vhost, "guest", configure="^$", write="^$", read="^$")
    site.node.ctl("close_all_connections", "--vhost", site.vhost, "permissions were taken")
    scene.traffic.go_on()
    assert until(lambda: not scene.is_running, NOTICED), "it isn't noticed"
    time.sleep(GONE_FOR)
    scene.wait_shown("invalid")
    site.node.admin.permissions(site.vhost, "guest")


def take_vhost(scene: Scene) -> None:
    site = scene.up
    site.node.admin.delete_vhost(site.vhost)
    time.sleep(GONE_FOR)
    scene.wait_shown("invalid", "vhost")
    site.node.admin.vhost(site.vhost)
    site.exchange()


def own_user(scene: Scene) -> str:
    """The upstream's URI, with a user that only this link has."""
    admin = scene.up.node.admin
    admin.user(USER, USER)
    admin.permissions(scene.up.vhost, USER)
    return scene.up.node.uri(scene.up.vhost, USER, USER, port=scene.to_up.port)


def own_user_by_tls(scene: Scene) -> str:
    own_user(scene)
    return by_tls(scene).replace("guest:guest", f"{USER}:{USER}")


def take_user(scene: Scene) -> None:
    scene.up.node.admin.delete("users", USER)
    time.sleep(GONE_FOR)
    scene.wait_shown("invalid", "refused")
    own_user(scene)


def by_name(scene: Scene) -> str:
    plain = scene.up.node.uri(scene.up.vhost, port=scene.to_up.port)
    return re.sub(r"@[^:/]+", f"@{UPSTREAM_NAME}", plain)


def lose_name(scene: Scene) -> None:
    scene.know_upstream()
    scene.to_up.cut()
    time.sleep(GONE_FOR)
    scene.wait_shown("backoff", UPSTREAM_NAME)
    scene.know_upstream(UPSTREAM_NAME)


def by_tls(scene: Scene) -> str:
    where = f"localhost:{scene.ends.tls.port}/{quote(scene.up.vhost, safe='')}"
    return f"amqps://guest:guest@{where}?cacertfile={scene.ends.tls.authority.cacertfile}"


def show(scene: Scene, certificate: Certificate) -> None:
    """Both files are read again with the next handshake."""
    shutil.copy(certificate.certfile, scene.ends.tls.shown.certfile)
    shutil.copy(certificate.keyfile, scene.ends.tls.shown.keyfile)
    scene.up.node.eval("ssl:clear_pem_cache().")


def expire_certificate(scene: Scene) -> None:
    show(scene, scene.ends.tls.authority.expired())
    scene.up.node.ctl("close_all_connections", "--vhost", scene.up.vhost, "the certificate expired")
    time.sleep(GONE_FOR)
    scene.wait_shown("invalid", "expired")
    show(scene, scene.ends.tls.authority.server("renewed"))


def step_clock(scene: Scene) -> None:
    """An hour ahead, then to an hour behind."""
    for step in (3600, -3600):
        scene.file("step").write_text(str(step))
        scene.to_up.cut()
        time.sleep(GONE_FOR)
    scene.file("step").write_text("0")


def fill_disk(scene: Scene) -> None:
    """The export is what suffers: what it can't write is counted, and it goes on once there is room."""
    filler = Path(f"/proc/{scene.agent.pid}/root{scene.file('export')}/filler")
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))
    assert until(lambda: dropped_events(scene) > 0, DEADLINE), "no event was dropped, so the disk wasn't full"
    assert scene.agent.logged("status export: events are dropped"), "nothing was logged"
    filler.unlink()
    before = dropped_events(scene)
    time.sleep(GONE_FOR)
    assert dropped_events(scene) <= before + 5, "the export doesn't go on"


def dropped_events(scene: Scene) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{scene.agent.port}/metrics", timeout=DEADLINE) as answer:
        text = answer.read().decode()
    [found] = re.findall(r"^federation_agent_export_dropped_events_total ([0-9.e+]+)$", text, re.MULTILINE)
    return float(found)


def lose_management(scene: Scene) -> None:
    scene.to_management.refuse()
    scene.to_management.cut()
    time.sleep(GONE_FOR)
    scene.to_management.accept()


def slow_management(scene: Scene) -> None:
    scene.to_management.delay(3)
    time.sleep(GONE_FOR)
    scene.to_management.delay(0)


def garble_management(scene: Scene) -> None:
    scene.to_management.garble(True)
    scene.to_management.cut()
    time.sleep(GONE_FOR)
    scene.to_management.garble(False)


def lose_events(scene: Scene) -> None:
    node = scene.down.node
    node.run("rabbitmq-plugins", "disable", "rabbitmq_event_exchange")
    time.sleep(GONE_FOR)
    node.run("rabbitmq-plugins", "enable", "rabbitmq_event_exchange")


def exhaust_descriptors(scene: Scene) -> None:
    """Its API can't be asked meanwhile; its log says why."""
    pid = scene.agent.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (NONE_FREE, before[1]))
    scene.to_up.cut()
    time.sleep(GONE_FOR)

    def changed() -> list[str]:
        return [line["error"] for line in scene.agent.logged("link changed") if line.get("status") == "backoff"]

    assert until(lambda: any("Too many open files" in error for error in changed()), DEADLINE), changed()
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def lower_channels(scene: Scene) -> None:
    node = scene.up.node
    node.eval("application:set_env(rabbit, channel_max, 4).")
    try:
        scene.to_up.cut()
        assert until(lambda: scene.is_running, DEADLINE)
    finally:
        node.eval("application:set_env(rabbit, channel_max, 2047).")


def lower_message_size(scene: Scene) -> None:
    """What doesn't fit is set aside, and goes where it was going to once an operator has raised the limit again."""
    node = scene.down.node
    usual = int(node.eval("{ok, Size} = application:get_env(rabbit, max_message_size), Size."))
    scene.traffic.hold()  # or all could be published before the limit holds
    limit_message_size(node, LONG // 2)
    try:
        scene.to_down.cut()
        scene.traffic.go_on()
        assert until(lambda: quarantined(scene) > 0, DEADLINE), "nothing was set aside"
        time.sleep(GONE_FOR)
    finally:
        limit_message_size(node, usual)
    scene.to_down.cut()
    assert until(lambda: scene.is_running, DEADLINE)
    replay = ["quarantine", "replay", "--all", "-c", str(scene.agent.path)]
    ran = scene.lab.agents.run(replay, cwd=scene.agent.directory, environment={}, deadline=DEADLINE)
    assert not ran.status, ran


def limit_message_size(node: Node, size: int) -> None:
    """Releases differ in where they look."""
    node.eval(f"application:set_env(rabbit, max_message_size, {size}), persistent_term:put(max_message_size, {size}).")


def quarantined(scene: Scene) -> int:
    return int(scene.link().get("quarantined") or 0)


def upstream(scene: Scene) -> Site:
    return scene.up


def downstream(scene: Scene) -> Site:
    return scene.down


def to_upstream(scene: Scene) -> Proxy:
    return scene.to_up


def to_downstream(scene: Scene) -> Proxy:
    return scene.to_down


MEMORY: Final = (methodcaller("limit_memory", "1000"), methodcaller("limit_memory", "2GB"))
_FULL: Final = "{resource_limit, disk, node()}"
DISK: Final = (
    methodcaller(
        "eval", f"rabbit_alarm:set_alarm({{{_FULL}, []}})."
    ),  # a broker in a directory can't tell what is free
    methodcaller("eval", f"rabbit_alarm:clear_alarm({_FULL})."),
)

OWN_MACHINE: Final = "tests.faults.own_machine"
NAMED: Final = Setting(module=OWN_MACHINE, uri=by_name)
EXPORTING: Final = Setting(
    module=OWN_MACHINE, agent={"status-export": {"directory": "export", "sample-interval": 1, "rotate": 5}}
)

TAKEN_OVER: Final = frozenset({"standby"})
"""Until the broker has noticed that the agent before has ended, which may be after the next one has started."""

FIRST: Final = Fault(
    "the agent is killed, and then both its ways are cut", kill_agent_and_cut, interruptions=3, may_show=TAKEN_OVER
)
KILLED: Final = Fault(
    f"the agent is killed {KILLS} times", partial(kill_agent, KILLS), interruptions=KILLS, may_show=TAKEN_OVER
)
STOPPED: Final = Fault("the agent is stopped under load and started again", stop_agent, interruptions=0)
OF_BROKERS: Final = (
    Fault("the upstream is restarted", partial(restart, upstream), ("backoff", "upstream")),
    Fault("the upstream is killed", partial(kill, upstream), ("backoff", "upstream")),
    Fault("the downstream is restarted", partial(restart, downstream), ("backoff", "downstream")),
    Fault("the downstream is killed", partial(kill, downstream), ("backoff", "downstream")),
)
OF_WAYS: Final = (
    Fault(f"{CUTS} cuts on the way to the upstream", partial(cut, to_upstream), interruptions=CUTS),
    Fault(f"{CUTS} cuts on the way to the downstream", partial(cut, to_downstream), interruptions=CUTS),
    Fault(f"the upstream is silent{LONG_SILENT}", partial(blackhole, to_upstream), ("backoff", "received")),
    Fault(f"the downstream is silent{LONG_SILENT}", partial(blackhole, to_downstream), ("backoff", "received")),
    Fault("the way to the upstream is throttled to 50 KiB/s", partial(throttle, to_upstream), runs_on=True),
    Fault("the way to the downstream is throttled to 50 KiB/s", partial(throttle, to_downstream), runs_on=True),
)
OF_ROOM: Final = (
    Fault("a memory alarm of the upstream", partial(alarm, upstream, *MEMORY), runs_on=True),
    Fault("a memory alarm of the downstream", partial(alarm, downstream, *MEMORY), ("blocked", "memory")),
    Fault("a disk alarm of the upstream", partial(alarm, upstream, *DISK), runs_on=True),
    Fault("a disk alarm of the downstream", partial(alarm, downstream, *DISK), ("blocked", "disk")),
    Fault("the downstream takes no long messages for a while", lower_message_size, interruptions=2),
    Fault("the upstream allows four channels", lower_channels),
)
OF_OBJECTS: Final = (
    Fault("the upstream queue is deleted", delete_upstream_queue, drains=True),
    Fault("the internal exchange is deleted", delete_internal_exchange, drains=True),
    Fault("the upstream exchange is deleted and made again", delete_upstream_exchange, drains=True),
    Fault(
        "the downstream exchange is deleted and made again",
        delete_downstream_exchange,
        drains=True,
        may_show=frozenset({"removing"}),
    ),
)
OF_ACCESS: Final = (
    Fault("permissions upstream are taken and given back", partial(take_permissions, upstream), ("invalid", "")),
    Fault("permissions downstream are taken and given back", partial(take_permissions, downstream), ("invalid", "")),
    Fault("the upstream's vhost is taken and given back", take_vhost, ("invalid", "vhost"), drains=True),
)
USER_TAKEN: Final = Fault(
    "the upstream's user is taken and given back", take_user, ("invalid", "refused"), setting=Setting(uri=own_user)
)
EXPIRED: Final = Fault(
    "the upstream's certificate expires", expire_certificate, ("invalid", "expired"), setting=Setting(uri=by_tls)
)
NAME_LOST: Final = Fault("the upstream's name no longer resolves", lose_name, ("backoff", UPSTREAM_NAME), setting=NAMED)
DISK_FULL: Final = Fault("the export's disk is full", fill_disk, setting=EXPORTING, runs_on=True)
STEPPED: Final = Fault("the clock is stepped", step_clock, setting=Setting(module="tests.faults.stepped_clock"))
OF_HTTP: Final = (
    Fault("the HTTP API returns garbage", garble_management, runs_on=True),
    Fault("the HTTP API is away", lose_management, runs_on=True),
    Fault("the HTTP API is slow", slow_management, runs_on=True),
    Fault("the event exchange vanishes", lose_events, runs_on=True),
)
NO_DESCRIPTOR: Final = Fault("no file descriptor is left", exhaust_descriptors)

PROCESSES: Final = (
    Series("the agent", (STOPPED, KILLED, NO_DESCRIPTOR)),
    Series("the brokers", OF_BROKERS),
    Series("the ways between them", OF_WAYS),
)
"""The agent and its brokers end, and the ways between them; or the agent has no descriptors."""
OBJECTS: Final = (
    Series("room and limits", OF_ROOM),
    Series("objects", OF_OBJECTS),
    Series("access", OF_ACCESS),
    Series("the user and the certificate", (USER_TAKEN, EXPIRED), Setting(uri=own_user_by_tls)),
    Series("the machine", (NAME_LOST, DISK_FULL), replace(EXPORTING, uri=by_name)),
    Series("the HTTP API and the clock", (*OF_HTTP, STEPPED), STEPPED.setting),
)
"""What is there changes: objects, permissions, room, what a machine offers."""


def as_asked(series: tuple[Series, ...]) -> tuple[Series, ...]:
    """`make faults` has a link of its own for each fault."""
    return tuple(alone(fault) for each in series for fault in each.faults) if ALL else series
