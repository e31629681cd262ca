"""Tokens and a permit for one call, both or none: a rate limiter and a concurrency limiter together.

Theory of operation
-------------------
Promises:

1. A call that is admitted has paid its tokens and holds its permit. One that is not admitted has neither.
2. Nobody holds a permit while waiting for tokens to come in, or tokens while waiting for a permit to be released. What
   is held is held for one answer of the other limiter, which takes a round trip at most.
3. A call that ends in any way gives its permit back: by a refusal, a timeout, a cancellation or an error of a signal
   handler. An error during the charge itself may lose the tokens of this call; no token is ever made.

`BaseAdmission` has the way of one call: it asks both limiters without waiting. Then it waits for what is short, holding
nothing, and asks for the other one without waiting. It goes on like this until it has both, or its time is over.
Threads call what its steps yield, and tasks await it.
"""

from typing import TYPE_CHECKING

from batchlimit.base.lazy import names

if TYPE_CHECKING:
    from batchlimit.admission.admission import Admission, AsyncAdmission, AsyncAdmitted
else:  # where __getattr__ would hide a name that there is not
    __getattr__, __dir__ = names(__name__, {"batchlimit.admission.admission": "Admission AsyncAdmission AsyncAdmitted"})

__all__ = ["Admission", "AsyncAdmission", "AsyncAdmitted"]
