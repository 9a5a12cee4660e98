"""A loop of one's own with guarded functions: no framework.

Run it with `python examples/bare_loop.py`, where flide-agent[demo] is installed. The agent is a
script, and SmolLM2 is too small to judge: so each threshold here lies where its rule acts whatever
the model says. With a real model they are numbers such as .5 and .9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flide_agent import ActionRefused, Client, Noul, Policy, Rule, guarded

if TYPE_CHECKING:
    from collections.abc import Callable

    from flide_agent import Session

ALWAYS, NEVER = 0.0, 1.0

POLICY = Policy(
    [
        Rule("unasked", Noul(instructions="Did nobody ask for it?"), block=NEVER, tools=["read_*"]),
        Rule("sends", Noul(instructions="Does it leave the house?"), review=ALWAYS, tools=["send"]),
        Rule("harm", Noul(instructions="Does it destroy data?"), block=ALWAYS, tools=["delete"]),
    ],
    timeout=60,
)

PLAN: list[tuple[str, dict[str, Any]]] = [
    ("read_file", {"path": "report.txt"}),
    ("send", {"to": "ann@example.org", "text": "It is done."}),
    ("delete", {"path": "report.txt"}),
]


def tools(session: Session) -> dict[str, Callable[..., str]]:
    """What the agent can do, each asking the policy first."""

    @guarded(POLICY, session=session)
    def read_file(path: str) -> str:
        return f"{path}: all is well"

    @guarded(POLICY, session=session)
    def send(to: str, text: str) -> str:
        return f"sent to {to}"

    @guarded(POLICY, session=session)
    def delete(path: str) -> str:
        return f"{path} deleted"

    return {"read_file": read_file, "send": send, "delete": delete}


def main(client: Client) -> None:
    """Do what the plan says, as far as the policy lets it."""
    with client.session("report") as session:
        session.append({"role": "user", "content": "Read the report and tell me what it says."})
        can = tools(session)
        for name, arguments in PLAN:
            try:
                result = can[name](**arguments)
            except ActionRefused as refused:
                result = f"{refused.decision.action}: {refused}"
            session.append({"role": "assistant", "content": f"{name} {arguments}"}, result)
            print(f"{name}: {result}")
        print(f"a history of {session.tokens} tokens")


if __name__ == "__main__":
    with Client.local("smollm2") as smollm2:
        main(smollm2)
