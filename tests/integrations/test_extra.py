"""What an integration says whose framework is not installed."""

import subprocess
import sys


def test_a_missing_grpcio_names_the_extra() -> None:
    without = "import sys; sys.modules['grpc'] = None; import batchlimit.integrations.grpc"
    found = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert found.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: batchlimit.integrations.grpc needs grpcio, of the 'grpc' extra: "
        "pip install 'batchlimit[grpc]'"
    )
