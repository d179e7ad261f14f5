"""How a node of the lab begins: with all its modules at once, and no Erlang machine a minute for epmd.

A node loads 1,100 modules one by one, each looked for in 60 directories: two thirds of its start. The first that
has started keeps them in a file; later ones, also of later sessions, load that file before RabbitMQ's first step.
"""

from __future__ import annotations

import fcntl
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.lab.releases import PROJECT, Release

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ERLANG: Final = Path("usr/lib/erlang")
SCRIPT: Final = "begin.script"
MODULES: Final = "modules.terms"
KEEPING: Final = "keeping"

ERL: Final = """\
export ROOTDIR={root} BINDIR={root}/{erts}/bin EMU=beam PROGNAME=erl
exec "$BINDIR/erlexec" "$@"
"""
STARTED: Final = """\
case "$*" in *epmd-starter*) exit 0 ;; esac
unset ERL_AFLAGS
exec "{installed}/bin/erl" "$@"
"""
BEGIN: Final = """\
case file:read_file("{modules}") of
    {{ok, Packed}} ->
        Missing = [Each || {{Name, _, _}} = Each <- binary_to_term(Packed), not erlang:module_loaded(Name)],
        {{ok, Prepared}} = code:prepare_loading(Missing),
        code:finish_loading(Prepared);
    {{error, enoent}} ->
        ok
end.
"""
KEEP: Final = """\
Loaded = [{{Name, File, Code}} || {{Name, File}} <- code:all_loaded(), is_list(File),
                                {{ok, Code}} <- [file:read_file(File)]],
Refused = case code:prepare_loading(Loaded) of {{ok, _}} -> []; {{error, Which}} -> Which end,
Kept = [Each || Each <- Loaded, not lists:keymember(element(1, Each), 1, Refused)],
ok = file:write_file("{modules}", term_to_binary(Kept)).
"""
"""Refused are those that run something when they are loaded."""


class Beginning:
    """Of nodes of one release, as its packages are installed now."""

    def __init__(self, release: Release) -> None:
        installed = (release.root / "var/lib/dpkg/status").stat().st_mtime_ns
        self._release = release
        self._directory = release.directory(PROJECT / "var" / "lab") / str(installed)

    def environment(self) -> dict[str, str]:
        """Of the node's process, and of what it starts."""
        self._prepare()
        inside = self._release.inside
        flags = f"-eval '{{ok, ok}} = file:script(\"{inside(self._directory / SCRIPT)}\").'"
        return {"PATH": f"{inside(self._directory / ERLANG.name / 'bin')}:{PATH}", "ERL_AFLAGS": flags}

    def keep_modules(self, evaluate: Callable[[str], str]) -> None:
        """For the nodes that start after the one which evaluates this. One worker at a time: it keeps a node busy for
        seconds, which then accepts no other caller."""
        self._prepare()  # a package that was installed since its start has made this another directory
        kept = self._directory / MODULES
        with kept.with_name(KEEPING).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                part = kept.with_name(f"{MODULES}.{secrets.token_hex(4)}")
                evaluate(KEEP.format(modules=self._release.inside(part)).replace("\n", " "))
                part.replace(kept)

    def _prepare(self) -> None:
        """An Erlang whose nodes start no other for epmd: RabbitMQ does each minute, and the lab's own epmd runs."""
        if self._directory.exists():
            return
        part = self._directory.with_name(f"{self._directory.name}.{secrets.token_hex(4)}")
        installed = self._release.root / ERLANG
        [erts] = installed.glob("erts-*")
        erlang, programs = part / ERLANG.name, part / ERLANG.name / erts.name / "bin"
        programs.mkdir(parents=True)
        (erlang / "bin").mkdir()
        _link(self._release, installed, but=("bin", erts.name), into=erlang)
        _link(self._release, installed / "bin", but=("erl",), into=erlang / "bin")
        _link(self._release, erts / "bin", but=("erl",), into=programs)
        root = self._release.inside(self._directory / ERLANG.name)
        _write_program(programs / "erl", STARTED.format(installed=self._release.inside(erts)))
        _write_program(erlang / "bin" / "erl", ERL.format(root=root, erts=erts.name))
        modules = self._release.inside(self._directory / MODULES)
        (part / SCRIPT).write_text(BEGIN.format(modules=modules))
        try:
            part.rename(self._directory)
        except OSError:  # another worker was quicker
            shutil.rmtree(part)


def _link(release: Release, directory: Path, *, but: tuple[str, ...], into: Path) -> None:
    for each in directory.iterdir():
        if each.name not in but:
            (into / each.name).symlink_to(release.inside(each))


def _write_program(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}")
    file.chmod(0o755)
