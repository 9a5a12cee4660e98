"""Policies: rules that turn answers into actions, decisions, and the record of them.

policy = Policy(
    rules=[
        Rule("injection", Noul(instructions="..."), block=0.9, review=0.6, release=0.4),
        Rule("refund", Noul(instructions="..."), review=0.5, tools=["refund_*"]),
    ]
)
verdict = judge(policy, answers)
"""

from flide_agent.policy.audit import AuditRecord, AuditSink, JsonLines, MemorySink
from flide_agent.policy.decisions import Decision, decided, failed
from flide_agent.policy.guards import Decides, guarded
from flide_agent.policy.judging import Bands, Verdict, judge
from flide_agent.policy.rules import Action, Band, Limits, Policy, Rule, parse_policy

__all__ = [
    "Action",
    "AuditRecord",
    "AuditSink",
    "Band",
    "Bands",
    "Decides",
    "Decision",
    "JsonLines",
    "Limits",
    "MemorySink",
    "Policy",
    "Rule",
    "Verdict",
    "decided",
    "failed",
    "guarded",
    "judge",
    "parse_policy",
]
