"""One RabbitMQ node: its files, its process and its commands."""

import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

from tests.lab import processes
from tests.lab.admin import Admin
from tests.lab.begin import PATH, Beginning
from tests.lab.leftovers import Leftovers
from tests.lab.releases import Release
from tests.lab.waiting import DEADLINE, NeverHappenedError, eventually

MANAGEMENT: Final = "rabbitmq_management"
DEFAULT_PLUGINS: Final = (MANAGEMENT, "rabbitmq_event_exchange")
AMQP10_PLUGINS: Final = (*DEFAULT_PLUGINS, "rabbitmq_amqp1_0")
"""Of releases before 4.0; later ones speak AMQP 1.0 anyway."""
NATIVE_PLUGINS: Final = (
    *DEFAULT_PLUGINS,
    "rabbitmq_federation",
    "rabbitmq_federation_management",
    "rabbitmq_shovel",
    "rabbitmq_shovel_management",
)

GUEST: Final = "Basic Z3Vlc3Q6Z3Vlc3Q="

EVALUATED: Final = "{ok, "

COMMAND_DEADLINE: Final = 180.0  # to disable a plugin took over a minute beside Spark
LOG_TAIL: Final = 100

CONF: Final = "rabbitmq.conf"
ENABLED_PLUGINS: Final = "enabled_plugins"
LIMITS: Final = ("mem_alarm", "disk_free_alarm", "mem_limit", "disk_free_limit")
LEASES: Final = ("federation-agent: lease", "federation-agent: replicas ")
"""What an agent keeps for its group on the broker beside it."""
PID: Final = "pid"
AS_NO_CHILD: Final = ("setsid", "--fork", "sh", "-c", 'echo $$ >"$0" && exec "$@"')
"""Writes its process id to the file that follows, and becomes the command after that."""
STARTED: Final = "started"
"""Beside the nodes of a lab: a line for each start."""

# Several brokers share few cores: few schedulers, and none that spins while idle.
ERLANG_FLAGS: Final = "+S 2:2 +SDcpu 2:2 +SDio 2 +A 2 +sbwt none +sbwtdcpu none +sbwtdio none"
# 3.10.8 waits five seconds at its end for a part of the management plugin that has already gone.
QUICK_STOP: Final = "-kernel shutdown_timeout 1000"
# Every two minutes a broker drops the counts of channels that have ended, also those of the last second, which nobody
# has read yet: 30 messages of a short-lived publisher are then in the queue, and in no statistics, for ever.
KEEP_COUNTS: Final = "-rabbit core_metrics_gc_interval 86400000"
LOOPBACK_DISTRIBUTION: Final = "-kernel inet_dist_use_interface {127,0,0,1}"
# Names without /etc/hosts, which some roots lack.
ERLANG_NAMES: Final = '{host, {127,0,0,1}, ["localhost"]}.\n{lookup, [file, native]}.\n'


class NodeError(Exception):
    """A node did not do what a test needs of it; the message ends with what its log says."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a node listens, on 127.0.0.1."""

    amqp: int
    management: int
    distribution: int
    epmd: int


@dataclass(eq=False)
class Node:
    """A broker; `Lab.node` makes one, with ports and a directory of its own.

    `conf` may be changed while the node is stopped; a line takes the place of the lab's own for the same key. A node
    that all tests share has `leftovers`, and refuses what would break it for the others.
    """

    name: str
    release: Release
    directory: Path
    ports: Ports
    mark: Mapping[str, str]
    plugins: tuple[str, ...] = DEFAULT_PLUGINS
    conf: list[str] = field(default_factory=list)
    cluster_name: str = ""
    cookie: str = field(default_factory=secrets.token_hex, repr=False)
    environment: dict[str, str] = field(default_factory=dict)  # of its processes, besides the lab's own
    leftovers: Leftovers | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, object]:
        """For other workers: without what belongs to this one."""
        return self.__dict__ | {"leftovers": None}

    @property
    def erlang_name(self) -> str:
        return f"{self.name}@localhost"

    @property
    def amqp_port(self) -> int:
        return self.ports.amqp

    @property
    def management_port(self) -> int:
        return self.ports.management

    @property
    def management_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.management}"

    @property
    def admin(self) -> Admin:
        return Admin(self.management_url, leftovers=self.leftovers)

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def alive(self) -> bool:
        pid, _, born = self._process.partition(" ")
        return bool(born) and processes.born(int(pid)) == born

    def uri(self, vhost: str = "/", user: str = "guest", password: str = "guest", *, port: int | None = None) -> str:
        """The AMQP URI; `port` for one that passes a proxy."""
        credentials = f"{quote(user, safe='')}:{quote(password, safe='')}"
        return f"amqp://{credentials}@127.0.0.1:{port or self.ports.amqp}/{quote(vhost, safe='')}"

    def management_uri(self, user: str = "guest", password: str = "guest", *, port: int | None = None) -> str:
        """The HTTP API's URL with credentials, as the agent's configuration wants it."""
        credentials = f"{quote(user, safe='')}:{quote(password, safe='')}"
        return f"http://{credentials}@127.0.0.1:{port or self.ports.management}"

    def start(self) -> Self:
        """Start and wait until clients are served."""
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self) -> Self:
        """Start without waiting, for nodes that need each other."""
        if self.alive:
            raise NodeError(f"node {self.name} is running already")
        self._write_files()
        with (self.directory.parent / STARTED).open("a") as started:
            started.write(f"{self.name}\n")
        # Its own -noinput, because the script's would come with a shell process between us and the broker.
        arguments = [self.release.script("rabbitmq-server"), "-noinput"]
        environment = self._environment() | {"RABBITMQ_ALLOW_INPUT": "1", "FEDERATION_LAB_NODE": self.name}
        environment |= Beginning(self.release).environment()
        (self.directory / PID).unlink(missing_ok=True)
        with self.log.open("ab") as log:
            # No child of this worker's, as others may use it, end it and start it again.
            subprocess.run(
                [*AS_NO_CHILD, str(self.directory / PID), *self.release.command(arguments, environment)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env={**os.environ, **environment},  # marked from the first moment
                check=True,
            )
        pid = int(eventually(lambda: self._process, what=f"node {self.name} has a process"))
        (self.directory / PID).write_text(f"{pid} {processes.born(pid)}")
        return self

    def wait_until_ready(self, deadline: float = DEADLINE) -> None:
        try:
            eventually(self._answers, deadline, what=f"node {self.name} answers")
        except NeverHappenedError as error:
            raise NodeError(f"{error}\n{self._log_tail()}") from error
        if self.plugins == DEFAULT_PLUGINS:
            Beginning(self.release).keep_modules(replace(self, leftovers=None).eval)

    def stop(self) -> None:
        """Stop as an operator would: the broker closes its connections and writes what it has."""
        self._for_one_test("stop")
        for pid in self.pids("beam.smp"):
            os.kill(pid, signal.SIGTERM)
        self._wait_for_exit()

    def kill(self) -> None:
        """SIGKILL: what a crash looks like."""
        self._for_one_test("kill")
        eventually(
            lambda: not processes.end(self._own_mark) and not self.alive,
            DEADLINE,
            what=f"node {self.name} is gone",
        )

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def ctl(self, *arguments: str) -> str:
        """Run `rabbitmqctl` of the node's release; what it prints."""
        return self.run("rabbitmqctl", *arguments)

    def eval(self, code: str) -> str:
        """What Erlang code gives in the node: as `rabbitmqctl eval`, at a hundredth of the CPU. Under a random name: a
        node refuses a second caller of one name, and workers share nodes."""
        answer = self._command("erl_call", "-r", "-n", self.erlang_name, "-e", told=f"{code}\n").strip()
        if not answer.startswith(EVALUATED):
            raise NodeError(f"{code} on {self.name}: {answer}")
        return answer.removeprefix(EVALUATED).removesuffix("}")

    def limit_memory(self, amount: str) -> None:
        """As `rabbitmqctl set_vm_memory_high_watermark absolute`; an alarm follows at once where more is used."""
        self._for_one_test("limit the memory of")
        self.eval(f'vm_memory_monitor:set_vm_memory_high_watermark({{absolute, "{amount}"}}).')

    def run(self, script: str, *arguments: str) -> str:
        """Run one of the node's scripts, such as `rabbitmq-plugins`; what it prints."""
        return self._command(self.release.script(script), *arguments)

    def _command(self, *arguments: str, told: str = "") -> str:
        if self.leftovers is not None:
            self.leftovers.commanded(self.name, replace(self, leftovers=None).alarms)
        environment = self._environment() | {"RABBITMQ_CTL_ERL_ARGS": LOOPBACK_DISTRIBUTION}
        command = self.release.command(arguments, environment)
        result = subprocess.run(
            command, input=told, capture_output=True, text=True, timeout=COMMAND_DEADLINE, check=False
        )
        if result.returncode:
            what = " ".join(arguments)
            raise NodeError(f"{what} on {self.name} exits {result.returncode}: {result.stdout}{result.stderr}")
        return result.stdout

    @property
    def _own_mark(self) -> str:
        return f"FEDERATION_LAB_NODE={self.name}"

    def pids(self, program: str) -> list[int]:
        """Its processes that run the program."""
        return [pid for pid in processes.marked(self._own_mark) if processes.program(pid) == program]

    def state(self) -> str:
        """What a test may have changed in a running node, but for agents' leases: compare it with that of before."""
        defined = self.admin.get("definitions")
        for kind, key in (("queues", "name"), ("exchanges", "name"), ("bindings", "source")):
            defined[kind] = [each for each in defined[kind] if not each[key].startswith(LEASES)]
        [own] = self.admin.get("nodes", query=f"columns={','.join(LIMITS)}")
        if set(own) != set(LIMITS):
            raise NodeError(f"{self.name} has no statistics yet")
        files = [(self.directory / name).read_text() for name in (CONF, ENABLED_PLUGINS)]
        settings = self.eval("erlang:phash2(lists:sort(application:get_all_env(rabbit))).")
        return json.dumps([defined, own, files, settings], sort_keys=True)

    def alarms(self) -> str:
        """Those in force, as Erlang prints them; nothing where there are none."""
        found = self.eval("rabbit_alarm:get_alarms().")
        return "" if found == "[]" else found

    def _for_one_test(self, do: str) -> None:
        if self.leftovers is not None:
            raise NodeError(f"all tests share {self.name}, none may {do} it: take one with the fixture `borrowed`")

    @property
    def _process(self) -> str:
        """Its id, and when it was born; nothing of a node that was never started."""
        file = self.directory / PID
        return file.read_text().strip() if file.exists() else ""

    def _wait_for_exit(self) -> None:
        eventually(lambda: not self.alive, DEADLINE, what=f"node {self.name} has ended")

    def _answers(self) -> bool:
        if not self.alive:
            raise NodeError(f"node {self.name} doesn't run\n{self._log_tail()}")
        return answers_amqp(self.ports.amqp) and (MANAGEMENT not in self.plugins or answers_http(self.ports.management))

    def _log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-LOG_TAIL:])

    def _write_files(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / CONF).write_text("".join(f"{line}\n" for line in self._conf_lines()))
        (self.directory / "inetrc").write_text(ERLANG_NAMES)
        plugins = self.directory / ENABLED_PLUGINS
        if not plugins.exists():  # `rabbitmq-plugins` may have changed it since
            plugins.write_text(f"[{','.join(self.plugins)}].\n")
        cookie = self.directory / ".erlang.cookie"
        if not cookie.exists():
            cookie.write_text(self.cookie)
            cookie.chmod(0o400)

    def _conf_lines(self) -> list[str]:
        own = [
            f"listeners.tcp.1 = 127.0.0.1:{self.ports.amqp}",
            f"cluster_name = {self.cluster_name}",
            "disk_free_limit.absolute = 1MB",
            "vm_memory_high_watermark.absolute = 2GB",
            # The default reads /proc, which a chroot lacks.
            "vm_memory_calculation_strategy = allocated",
            # What the HTTP API says of queues is this old; and 4.3 answers some paths with 500 until it has the first.
            "collect_statistics_interval = 1000",
        ]
        if MANAGEMENT in self.plugins:
            own += ["management.tcp.ip = 127.0.0.1", f"management.tcp.port = {self.ports.management}"]
        return overridden(own, self.conf)

    def _environment(self) -> dict[str, str]:
        inside = self.release.inside
        home = inside(self.directory)
        return {
            **self.mark,
            "HOME": home,
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self.ports.epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_INETRC": f"{home}/inetrc",
            "ERL_CRASH_DUMP_SECONDS": "0",
            "RABBITMQ_NODENAME": self.erlang_name,
            "RABBITMQ_DIST_PORT": str(self.ports.distribution),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": f"{home}/{CONF}",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{home}/advanced.config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{home}/{ENABLED_PLUGINS}",
            "RABBITMQ_MNESIA_BASE": f"{home}/data",
            "RABBITMQ_LOG_BASE": f"{home}/logs",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": " ".join(
                (ERLANG_FLAGS, QUICK_STOP, KEEP_COUNTS, LOOPBACK_DISTRIBUTION)
            ),
            **self.environment,
        }


def overridden(own: Iterable[str], given: Iterable[str]) -> list[str]:
    """The lab's lines but for those whose key is given, then those given."""
    given = list(given)
    keys = {_key(line) for line in given}
    return [line for line in own if _key(line) not in keys] + given


def _key(line: str) -> str:
    return line.partition("=")[0].strip()


def answers_amqp(port: int) -> bool:
    """Whether a broker answers a protocol header with a method frame."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            return connection.recv(1) == b"\x01"
    except OSError:
        return False


def answers_http(port: int) -> bool:
    """Whether the HTTP API serves, or refuses a guest who may have been renamed."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/api/overview", headers={"Authorization": GUEST})
        return connection.getresponse().status < http.HTTPStatus.INTERNAL_SERVER_ERROR
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
