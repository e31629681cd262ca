"""A real Prometheus on loopback, as Debian has it, that scrapes the given targets."""

import json
import socket
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.programs import program


class Prometheus:
    """Answers questions; as long as it is not there yet, with nothing."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __repr__(self) -> str:
        return f"<Prometheus at {self.url}>"

    def answer(self, expression: str) -> list[Any]:
        """Return the series of an expression, each with its value now."""
        return self._ask("query", query=expression)

    def history(self, expression: str, start: float, end: float) -> list[Any]:
        """Return the series of an expression, second by second."""
        return self._ask("query_range", query=expression, start=start, end=end, step=1)

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire now."""
        return {each["metric"]["alertname"] for each in self.answer('ALERTS{alertstate="firing"}')}

    def _ask(self, what: str, **query: object) -> list[Any]:
        try:
            with urllib.request.urlopen(
                f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(query)}", timeout=30
            ) as reply:
                return list(json.load(reply)["data"]["result"])
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 503:  # it begins
                    return []
                raise ValueError(f"{query}: {error.read().decode()}") from error
        except OSError:
            return []


@contextmanager
def prometheus(targets: Mapping[str, int], rules: str = "", every: str = "1s") -> Iterator[Prometheus]:
    """Run one that scrapes these ports by the names of their jobs, and looks at the rules (YAML) as often."""
    binary = program("prometheus")
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
        jobs = [
            {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
            for name, target in targets.items()
        ]
        times = {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every}
        config, told = Path(folder) / "prometheus.yml", Path(folder) / "rules.yml"
        told.write_text(rules, encoding="utf-8")
        whole = {"global": times, "scrape_configs": jobs, "rule_files": [str(told)]}
        config.write_text(json.dumps(whole), encoding="utf-8")
        found.close()
        command = [binary, f"--config.file={config}", f"--storage.tsdb.path={folder}/data"]
        address = f"--web.listen-address=127.0.0.1:{port}"
        with subprocess.Popen([*command, address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                yield Prometheus(f"http://127.0.0.1:{port}")
            finally:
                process.terminate()
