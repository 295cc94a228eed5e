"""Write examples/prompts.parquet: 64 prompts as chat messages, short and long, some that quote a text to work on.

    python examples/make_prompts.py [FILE]

Prompts that quote a text to be corrected, shortened or listed repeat it in their answers, so that n-gram
drafting has something to find; open questions give it little. Both belong in an honest example.
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FERRY = """The ferry to the northern island leaves at six in the morning, before the fog has lifted from the
harbour. On weekdays it carries teachers, two nurses and the post; on Saturdays it carries bicycles. The captain,
who has made the crossing for thirty-one years, says that the sea has not changed but the timetable has: there were
once five boats a day, then three, and since the bridge opened there is only one. The islanders have written to the
county four times. The county has answered twice, both times to say that the matter is being looked into."""

GLACIER = """Glaciers move because ice under pressure behaves like a very thick liquid. Snow that falls at the top
is buried, loses its air and turns into ice; when the ice is about thirty metres thick its own weight makes it creep
downhill. The middle of a glacier moves faster than its edges, where rock holds it back, and the surface moves
faster than the bed. Meltwater that reaches the bed works as a lubricant, so many glaciers are fastest in early
summer. A glacier is in balance when the snow gained in winter equals the ice lost in summer."""

MINUTES = """Minutes of the garden committee. Present: Anna, Bilal, Carmen, Dmitri. Anna reported that the water
pump failed on 3 May and was repaired on 9 May for 240 euros. Bilal proposed to buy a second pump; Carmen was
against, since the budget for the year has 310 euros left. It was agreed to ask the neighbouring garden to share
one. Dmitri will ask them by 1 June. Carmen will order twelve bags of compost. The path beside the greenhouse is
muddy, and Anna will find out what gravel costs. Next meeting: 14 June at seven, in the greenhouse."""

RECIPE = """Lentil soup for four. Rinse 300 grams of brown lentils. Chop two onions, two carrots and a stick of
celery and fry them in olive oil for ten minutes. Add a spoon of tomato paste and a spoon of cumin and fry for one
minute more. Add the lentils and one and a half litres of water and bring to the boil. Simmer for thirty-five
minutes. Salt at the end, since salt keeps lentils hard. Serve with lemon and bread. The soup keeps for three days
and can be frozen for three months."""

TYPOS = """Dear Sir or Madame, I am writting to you becuase the parcell that I orderd on the 12th of March has
still not arived. Acording to your web site it was sended on the 14th, and the tracking number dont work. I have
allready called your hotline too times and both time I was told to wait. I would apreciate it if you could eather
send a new parcell or give me my mony back untill the end of next weak. Yours sincerly, M. Okafor"""

RELEASE = """Version 2.4 of the scheduler is out. It reads its settings from one file instead of three, and the old
files are still read until version 3. Jobs that fail are tried again at most five times, with a pause that doubles
each time. The dashboard shows how long each job waited as well as how long it ran. A bug that let two workers take
the same job after a network failure is fixed. The command `sched purge` now asks before it deletes anything; in
scripts, pass --yes. Python 3.9 is no longer supported."""

CODE = """def average(values):
    total = 0
    count = 0
    for value in values:
        total = total + value
        count = count + 1
    return total / count


def largest(values):
    best = 0
    for value in values:
        if value > best:
            best = value
    return best
"""

TABLE = """name,city,year,members
Northside Rowing,Bergen,1904,212
Harbour Chess,Porto,1931,58
Old Town Choir,Tartu,1899,77
Field Botanists,Ghent,1956,131
Night Sky Society,Cork,1972,94
River Swimmers,Basel,1988,305"""

QUESTIONS = [
    "What is the capital of Portugal?",
    "Why is the sky blue?",
    "Name three uses of a paper clip.",
    "What is the difference between weather and climate?",
    "How many minutes are there in a week?",
    "Which planet has the longest day?",
    "What does a violin have that a guitar does not?",
    "Explain what a prime number is to a ten-year-old.",
    "Who wrote Frankenstein, and when?",
    "Is a tomato a fruit or a vegetable?",
    "Translate 'good evening, my friends' into French.",
    "Give me one sentence with the word 'lighthouse' in it.",
]

WRITING = [
    "Write a short poem about the first day of snow.",
    "Write the opening paragraph of a detective story that is set in a library.",
    "Write a friendly email that asks a colleague to water your plants for two weeks.",
    "Describe a market in the early morning in five sentences.",
    "Write a product description for a folding bicycle, in no more than eighty words.",
    "Invent a small festival for a village by a lake, and explain its customs.",
    "Write three reasons for and three reasons against living in a big city.",
    "Explain how a lock and key work, step by step.",
]

REASONING = [
    "A train leaves at 9:40 and arrives at 13:05. How long does the journey take? Show your steps.",
    "I have 3 boxes with 12 eggs each, and 7 eggs break. How many are left? Explain.",
    "If all roses are flowers and some flowers fade quickly, do all roses fade quickly? Explain your answer.",
    "A shirt costs 40 euros and is reduced by 15 percent. What does it cost now? Show your steps.",
    "Sort these numbers from small to large and give their sum: 42, 7, 19, 88, 3, 56.",
    "Today is Wednesday. What day of the week will it be in 100 days? Show your steps.",
]

CODING = [
    "Write a Python function that checks whether a string is a palindrome.",
    "Write a SQL query that counts the orders of each customer in the table orders(customer_id, total).",
    "Write a shell command that lists the ten largest files below the current directory.",
    f"Rewrite this code with the built-in functions of Python, and say what changes for an empty list:\n\n{CODE}",
    f"Add a docstring to both functions and change nothing else:\n\n{CODE}",
    f"Find the bug in the function `largest`, and give the whole corrected code:\n\n{CODE}",
]

TASKS_ON_TEXTS = [
    "Summarise the following text in two sentences.\n\n{}",
    "Repeat the following text, but put every sentence on a line of its own.\n\n{}",
    "Write a title for the following text, then quote its most important sentence.\n\n{}",
    "List the facts of the following text as bullet points, in its own words.\n\n{}",
]

TASKS_ON_ONE_TEXT = [
    f"Correct the spelling and grammar of this letter and change nothing else.\n\n{TYPOS}",
    f"Rewrite this letter so that it is polite but firm.\n\n{TYPOS}",
    f"Turn this table into a list with one line for each club.\n\n{TABLE}",
    f"Turn this table into JSON, with the same keys.\n\n{TABLE}",
    f"Which club in this table is the oldest, and which has the most members?\n\n{TABLE}",
    f"Who has to do what, and by when? Quote the minutes.\n\n{MINUTES}",
]

CONVERSATIONS = [
    ["What is compost?", "Compost is decayed plant matter that feeds the soil.", "How do I start a heap?"],
    ["Give me a word for a very small house.", "A cottage, a hut or a cabin.", "And for a very large one?"],
    [
        f"Here is a recipe.\n\n{RECIPE}",
        "Thank you. What would you like to know about it?",
        "Write it again for eight people.",
    ],
    [
        f"Read this.\n\n{RELEASE}",
        "I have read it. It announces version 2.4 of a scheduler.",
        "What must I change in my scripts? Quote the sentence.",
    ],
]

TERSE = "You answer in one short sentence."
EDITOR = "You are a careful copy editor. You return the whole text."


def turns(texts: list[str], system: str | None = None) -> list[dict[str, str]]:
    """Alternating user and assistant messages, after the system's where there is one."""
    roles = ["user", "assistant"]
    spoken = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return ([{"role": "system", "content": system}] if system else []) + spoken


def prompts() -> list[tuple[str, list[dict[str, str]]]]:
    """(category, messages) of each row, in the file's order."""
    rows = [("question", turns([text], TERSE if i % 3 == 0 else None)) for i, text in enumerate(QUESTIONS)]
    rows += [("writing", turns([text])) for text in WRITING]
    rows += [("reasoning", turns([text])) for text in REASONING]
    rows += [("coding", turns([text])) for text in CODING]
    texts = [FERRY, GLACIER, MINUTES, RECIPE, RELEASE]
    rows += [("text", turns([task.format(text)])) for text in texts for task in TASKS_ON_TEXTS]
    rows += [("text", turns([task], EDITOR if i == 0 else None)) for i, task in enumerate(TASKS_ON_ONE_TEXT)]
    rows += [("conversation", turns(texts)) for texts in CONVERSATIONS]
    rows += [("long", turns(["Which of these texts is about ice?\n\n" + "\n\n".join(texts)]))]
    rows += [("long", turns(["Summarise each of these texts in one sentence.\n\n" + "\n\n".join(texts[:4])]))]
    return rows


def main(path: Path) -> None:
    rows = prompts()
    ids = [f"{category}-{i:02d}" for i, (category, _) in enumerate(rows)]
    columns = {"id": ids, "category": [c for c, _ in rows], "messages": [m for _, m in rows]}
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    schema = pa.schema([("id", pa.string()), ("category", pa.string()), ("messages", pa.list_(message))])
    pq.write_table(pa.table(columns, schema=schema), path)
    print(f"{path}: {len(rows)} prompts")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("prompts.parquet"))
