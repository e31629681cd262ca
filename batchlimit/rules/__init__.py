"""Which requests are charged to which keys: rules by method and path, from Python or from a file.

A Rule names requests, a key and a quota. Rules hold several of them and tell which apply to a Request. They ask no
store: middleware of `batchlimit.integrations` does, with a limiter whose quotas are `rules.quotas`.
"""

from batchlimit.rules.explanation import Explanation, Verdict
from batchlimit.rules.file import RuleFile
from batchlimit.rules.request import Applicable, Applied, Match, Request, Template, Unmade
from batchlimit.rules.rule import Rule, RulesError, Statuses
from batchlimit.rules.rules import Rules

__all__ = [
    "Applicable",
    "Applied",
    "Explanation",
    "Match",
    "Request",
    "Rule",
    "RuleFile",
    "Rules",
    "RulesError",
    "Statuses",
    "Template",
    "Unmade",
    "Verdict",
]
