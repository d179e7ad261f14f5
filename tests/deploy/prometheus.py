"""A real Prometheus with the configuration and rules of deploy/prometheus, faster and beside a test's agent."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.lab.lab import Lab

ROOT: Final = Path(__file__).parents[2]
DEPLOYED: Final = ROOT / "deploy/prometheus"


@dataclass(eq=False)
class Prometheus:
    directory: Path
    port: int
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, lab: Lab, directory: Path, targets: list[str], token: Path) -> Prometheus:
        configuration = yaml.safe_load((DEPLOYED / "prometheus.yml").read_text())
        configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        [job] = configuration["scrape_configs"]
        job["authorization"]["credentials_file"] = str(token)
        job["static_configs"] = [{"targets": targets}]
        shutil.copytree(DEPLOYED / "rules", directory / "rules")
        (directory / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        port = lab.ports.take()
        command = [
            "prometheus",
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(command, env=os.environ | lab.mark, stdout=log, stderr=log)
        return cls(directory, port, process)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant query that are numbers."""
        asked = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?{asked}", timeout=30) as answer:
            found = json.load(answer)["data"]["result"]
        return [sample for sample in found if math.isfinite(float(sample["value"][1]))]
