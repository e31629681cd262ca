"""The contestants of `benchmarks/web_users.py`: each limits its users. Else its figures would be too good."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from benchmarks.web_user_apps import APPS
from benchmarks.web_users import PACKAGES
from tests.servers import Server

PROGRAM = """
import sys
from benchmarks.web_user_apps import application

def asked(app, user):
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/item", "HTTP_X_USER": user, "SERVER_NAME": "a",
               "SERVER_PORT": "80", "HTTP_HOST": "a", "wsgi.url_scheme": "http", "wsgi.input": sys.stdin.buffer}
    b"".join(app(environ, lambda status, *_: print(status[:3], end=" ")))

app = application()
if "fastapi" in type(app).__module__:
    from fastapi.testclient import TestClient
    with TestClient(app, raise_server_exceptions=False) as client:
        for user in ("ann", "ann", "ann", "bob"):
            print(client.get("/item", headers={"x-user": user}).status_code, end=" ")
else:
    for user in ("ann", "ann", "ann", "bob"):
        asked(app, user)
"""
EVERY = [(framework, name) for framework, apps in APPS.items() for name in apps if name != "none"]


@pytest.mark.parametrize(("framework", "name"), EVERY, ids=str)
def test_a_contestant_refuses_the_third_request_of_a_user(
    framework: str, name: str, valkey: Server, prefix: str
) -> None:
    if name in PACKAGES and not find_spec(PACKAGES[name]):
        pytest.skip(f"needs {name}")
    own = {"CONTESTANT": f"{framework} {name} 4", "STORE": valkey.url, "PREFIX": prefix, "QUOTA": "2/minute"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["200", "200", "403" if name == "django-ratelimit" else "429", "200"], done.stderr
