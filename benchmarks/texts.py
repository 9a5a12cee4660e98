"""A support desk's log of any length, and questions about it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flide_engine import Engine, Request

_NAMES = ("Amara", "Bogdan", "Chen", "Dilnoza", "Elif", "Farid", "Greta", "Hyun-woo", "Ines")
_GOODS = ("kettle", "desk lamp", "road bike", "winter coat", "headset", "coffee grinder", "router")
_TEAMS = ("billing", "the warehouse", "the repair shop", "the carrier", "legal", "the web team")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")

_SENTENCES = (
    "{name} wrote that the {goods} from order {number} arrived with a cracked housing.",
    "An agent asked {name} for two photographs and the number printed under the {goods}.",
    "The tool lookup_order returned status delivered, total {price} and one earlier complaint.",
    "{name} answered within the hour and attached a picture of the torn box.",
    "The case was handed to {team}, who promised a reply before {day}.",
    "{team} found that parcel {number} had been weighed twice and was {small} grams too light.",
    "A refund of {price} was offered, but {name} would rather have the {goods} replaced.",
    "The tool check_stock returned {small} pieces of the {goods}, all of them at another site.",
    "{name} called again, sounded tired, and asked who was going to pay for the return.",
    "The agent apologised, explained the two choices again, and waited for an answer.",
    "A note in the file says that {name} has been a customer since the shop opened.",
    "The return label for order {number} was sent by mail and opened {small} minutes later.",
    "On {day} the carrier scanned the parcel, and {team} confirmed that it was the {goods}.",
    "The card was charged {price} a second time, which {team} calls a mistake of the bank.",
    "{name} said that a friend had the same trouble with a {goods} last year.",
    "The tool create_ticket returned number {number} with priority normal and no due date.",
)

# Half a sentence: with less than that to go, another one would miss by more.
_CLOSE = 12


def log(tokenizer: Any, tokens: int, seed: int = 0) -> str:
    """Sentences that make about so many tokens; each begins with a blank."""
    rng = random.Random(seed)
    sentences = []
    while tokens > _CLOSE:
        sentence = " " + rng.choice(_SENTENCES).format(
            name=rng.choice(_NAMES),
            goods=rng.choice(_GOODS),
            team=rng.choice(_TEAMS),
            day=rng.choice(_DAYS),
            number=rng.randrange(10_000, 100_000),
            small=rng.randrange(2, 60),
            price=f"{rng.randrange(10, 400)}.{rng.randrange(100):02} euros",
        )
        tokens -= len(tokenizer(sentence, add_special_tokens=False).input_ids)
        sentences.append(sentence)
    return "".join(sentences)


def request(engine: Engine, state_tokens: int, count: int) -> Request:
    """The first so many questions about a log, with a trunk of about so many tokens."""
    asked = questions(count)
    template = len(engine.plan("", asked).trunk)
    return engine.plan(log(engine.tokenizer, state_tokens - template), asked)


def questions(count: int) -> dict[str, Any]:
    """The first so many of sixteen questions, of all types."""
    return dict(list(_QUESTIONS.items())[:count])


def _noul(instructions: str, true: str | None = None, false: str | None = None) -> dict[str, Any]:
    return {
        "type": "noul",
        "instructions": instructions,
        "criteria": {"true": true, "false": false},
    }


def _choice(instructions: str, **criteria: str | None) -> dict[str, Any]:
    return {"type": "choice", "instructions": instructions, "criteria": criteria}


def _score(instructions: str, *levels: str) -> dict[str, Any]:
    return {"type": "score", "instructions": instructions, "criteria": list(levels)}


_QUESTIONS: dict[str, dict[str, Any]] = {
    "team": _choice(
        "Which team should handle what is still open?",
        billing="charges, refunds and invoices",
        warehouse="stock, packing and wrong items",
        carrier="late, lost or damaged parcels",
        none="nothing is open",
    ),
    "refund": _noul(
        "Does the customer who wrote last want their money back?",
        "a refund is asked for or a charge is disputed",
        "a repair, a replacement or only information is wanted",
    ),
    "anger": _score(
        "How angry is the customer who wrote last?",
        "calm and friendly",
        "somewhat annoyed",
        "clearly angry",
        "furious or threatening",
    ),
    "next": _choice(
        "What should the agent do next?",
        ask="ask the customer for what is missing",
        lookup="look the order up again",
        refund="pay the money back",
        escalate="hand the case to a person",
    ),
    "damaged": _noul(
        "Did at least one of the goods arrive damaged?",
        "a defect that was there on arrival is described",
        "whatever is wrong happened later, or nothing is",
    ),
    "charged_twice": _noul(
        "Was a customer charged twice for the same order?",
        "two charges for one order are mentioned",
        "each order was charged once at most",
    ),
    "urgency": _score(
        "How soon must somebody act on this log?",
        "there is no hurry at all",
        "within the week is soon enough",
        "today, or a promise is broken",
        "now, because money or safety is at stake",
    ),
    "language": _choice(
        "In what tone should the next reply be written?",
        formal="polite and distant, with full titles",
        friendly="warm and personal, first names only",
        brief="facts alone, in two sentences at most",
    ),
    "promise": _noul(
        "Has the agent promised anything that has not happened yet?",
        "a date, a call or a payment is still owed",
        "all that was promised has been done",
    ),
    "photo": _noul(
        "Has the customer sent a photograph of the damage?",
        "a picture was attached or uploaded",
        "no picture was sent, or it shows something else",
    ),
    "fault": _choice(
        "Who is most probably at fault for the last problem?",
        shop="the shop sent or charged something wrong",
        carrier="the parcel was lost or damaged on its way",
        customer="the customer used or ordered it wrongly",
        unknown="the log does not say",
    ),
    "patience": _score(
        "How patient has the agent been in this log?",
        "rude or dismissive",
        "correct but cold",
        "patient",
        "patient and warm even under pressure",
    ),
    "repeat": _noul(
        "Has the same customer complained about the same thing before?",
        "an earlier complaint of this customer is on file",
        "this is the first complaint, or it is about something else",
    ),
    "legal": _noul(
        "Does anybody threaten with a lawyer, a court or the press?",
        "such a threat is made, even if politely",
        "no such threat is made",
    ),
    "cost": _score(
        "How much will it cost the shop to settle what is open?",
        "nothing",
        "less than 50 euros",
        "50 to 200 euros",
        "more than 200 euros",
    ),
    "done": _noul(
        "Is the task of the agent finished?",
        "every customer has an answer and nothing is owed",
        "at least one customer still waits for something",
    ),
}
