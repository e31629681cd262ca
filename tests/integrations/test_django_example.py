"""The example of Django, in a process of its own: a process has one project."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CALLS = """
from examples.django_site import wsgi, asgi
from django.core.management import call_command
from django.test import Client
call_command("check")
client = Client()
print([client.get("/search", headers={"x-user": "ann"}).status_code for _ in range(3)])
print([client.post("/login", {"password": "guess"}).status_code for _ in range(6)])
"""


def test_the_example_does_what_the_page_tells() -> None:
    environment = {**os.environ, "STORE": "memory://", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", CALLS], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == ["[200, 200, 429]", "[401, 401, 401, 401, 401, 429]"]
    assert "no issues" in done.stdout
