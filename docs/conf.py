"""The documentation as a site: README.md is its first page, docs/ the others, docs/reference what the docstrings say.

scripts/docs builds it. A link that leads nowhere, or a name that is not there, fails the build.
"""

from importlib.metadata import version as installed_version

from sphinx.application import Sphinx

project = "batchlimit"
version = release = installed_version("batchlimit")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"batchlimit {version}"

# The pages link to the README, to examples and to results, so the checkout is the folder of pages.
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "benchmarks/results/*.md"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]

maximum_signature_line_length = 100
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
default_role = "code"  # as in Markdown
napoleon_use_ivar = True

CONTENTS = """
```{toctree}
:hidden:
:caption: Use it

docs/guide
docs/outbound
docs/redis
docs/failures
docs/upgrading
docs/processes
docs/security
docs/concurrency
docs/how-to/at-most-n
docs/how-to/workers
docs/how-to/live-rules
docs/how-to/plans
docs/how-to/command-line
docs/how-to/monitoring
docs/how-to/testing
```

```{toctree}
:hidden:
:caption: The web

docs/web
docs/charged
docs/rules
docs/how-to/moving
docs/how-to/peers-tests
docs/how-to/fastapi
docs/how-to/starlette
docs/how-to/litestar
docs/how-to/quart
docs/how-to/flask
docs/how-to/django
docs/how-to/aiohttp
docs/how-to/grpc
```

```{toctree}
:hidden:
:caption: Reference

docs/reference/rates
docs/reference/concurrency
docs/reference/rules
docs/reference/frameworks
docs/reference/operators
docs/reference/testing
docs/reference/stores
docs/reference/errors
```

```{toctree}
:hidden:
:caption: Behind it

docs/how-it-works
docs/how-it-is-tested
docs/performance/README
docs/performance/method
docs/performance/overload
docs/performance/laws
docs/performance/fleets
docs/performance/permits
docs/performance/live-rules
docs/performance/web
benchmarks/results/peers
benchmarks/results/everyday
CONTRIBUTING
CHANGELOG
```
"""


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Add the contents to the first page; README.md has its own, for those who read it elsewhere."""
    if page == root_doc:
        source[0] += CONTENTS


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_contents)
