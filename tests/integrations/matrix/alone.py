"""An application for a server in a process of its own, which cannot run in a thread of another one."""

from tests.integrations.faces.rules import MESSAGES, RULES, VIEWS
from tests.integrations.made import View, plain

CHAT = View("/chat", None)
app, _ = plain.made([*VIEWS, CHAT], "memory://", RULES, messages=MESSAGES, checks=False)
