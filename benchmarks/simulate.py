"""Every law of concurrency before a server of known capacity, simulated: tables and plots of docs/performance/laws.md.

    python -m benchmarks.simulate [--quick] [--seeds N] [--only LETTERS] [--laws PATTERN] [--jobs N]

The same every time, on every machine. Exit status 1 if the default law misses a target in a scenario that is judged.
"""

import argparse
import multiprocessing
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from os import cpu_count
from pathlib import Path

from benchmarks.markdown import table
from benchmarks.queueing.contestants import CONTESTANTS, LAWS
from benchmarks.queueing.drawing import draw_goodput, draw_limits
from benchmarks.queueing.laws import OURS
from benchmarks.queueing.report import details, goodput_table, losses, verdicts
from benchmarks.queueing.results import Results, measure
from benchmarks.queueing.scenario import FALSE_REJECTIONS, GOODPUT, HIDDEN_SEEDS, JUDGED, SCENARIOS, SEEDS

_DOCS = Path(__file__).resolve().parents[1] / "docs" / "performance"
_MOVING = "DHI"
"""The scenarios whose limits are drawn: where capacity changes, or how long a call takes."""

_DRAWN = ("AIMD, 5 s", "Vegas", "Windowed Vegas", "Windowed Gradient2", OURS)


def main() -> int:
    """Measure, and write what the documentation shows; the exit status."""
    chosen = _arguments()
    letters = [letter for letter in SCENARIOS if letter in chosen.only]
    who = tuple(each for each in CONTESTANTS if re.search(chosen.laws, each) or each == OURS)
    seeds = SEEDS[: 2 if chosen.quick else chosen.seeds]
    with ProcessPoolExecutor(chosen.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        seen = measure(pool, letters, who, seeds, hidden=False)
        text = _show(_summary(seen, letters))
        if chosen.hidden:
            unseen = measure(pool, letters, who, HIDDEN_SEEDS, hidden=True)
            text += _show(_hidden(unseen, letters))
    text += _show("## Figure by figure\n\n" + "\n".join(details(seen)))
    is_whole = len(letters) == len(SCENARIOS) and len(who) == len(CONTESTANTS)
    if not chosen.quick and is_whole and chosen.hidden:
        _write(text, seen)
    return int(any(row[0] == OURS and row[-1] != "yes" for row in verdicts(seen)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two seeds, and nothing is written")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="of the seeds 0 to 9, the first so many")
    parser.add_argument("--only", default="".join(SCENARIOS), help="letters of scenarios; nothing is written")
    parser.add_argument("--laws", default="", help="those whose name matches, and ours; nothing is written")
    parser.add_argument("--jobs", type=int, default=cpu_count() or 1, help="runs at a time")
    parser.add_argument("--hidden", action="store_true", help="also the seeds that no law was tuned on; then it writes")
    return parser.parse_args()


def _summary(seen: Results, letters: Sequence[str]) -> str:
    judged = [letter for letter in letters if letter in JUDGED]
    others = [letter for letter in letters if letter not in JUDGED]
    head = [
        "law",
        f"least goodput of A to H (>= {GOODPUT})",
        f"false rejections in A (<= {FALSE_REJECTIONS:.0%})",
        "both",
    ]
    tables = table(head, verdicts(seen)), goodput_table(seen, judged), goodput_table(seen, others)
    return "\n".join((*tables, "Where another law does better (goodput, p99):\n", _lost(seen)))


def _lost(results: Results) -> str:
    return table(["", OURS, "the best", "which is"], losses(results))


def _hidden(unseen: Results, letters: Sequence[str]) -> str:
    judged = [letter for letter in letters if letter in JUDGED]
    others = [letter for letter in letters if letter not in JUDGED]
    return "\n".join(
        (
            "\n## Numbers that no law was tuned on\n",
            "The same scenarios with load +-7 %, half to twice the workers, service times x0.5 to x2.5 with CV 0.2 to",
            "1.2, each seed its own. They ran once for each version of our law, when it was done. The law was tuned on",
            "seeds 0 to 9 of the scenarios as they stand, and on such variants with other seeds (200 to 259).\n",
            goodput_table(unseen, judged),
            goodput_table(unseen, others),
            "Where another law does better there (goodput, p99):\n",
            _lost(unseen),
        )
    )


def _show(text: str) -> str:
    print(text, flush=True)
    return text + "\n"


def _write(text: str, seen: Results) -> None:
    draw_limits(_DOCS / "limits.svg", _MOVING, _DRAWN, seed=0)
    draw_goodput(_DOCS / "goodput.svg", seen, list(JUDGED), tuple(LAWS))
    scenarios = table(
        ["", "what happens", "deadline"], ([s.letter, s.title, f"{s.deadline:g} s"] for s in SCENARIOS.values())
    )
    intro = f"""# Laws of concurrency, simulated

Written by `python -m benchmarks.simulate --hidden`. A server has c workers (20 unless said) and one queue, first come
first served. Arrivals are Poisson, and nothing holds them back. Service times are lognormal, 20 ms on average, CV 0.5,
unless said. Loads are multiples of what the workers can serve. A call is admitted while fewer are under way than the
limit, and turned away at once otherwise. Mostly 60 s a run, the first 20 not counted (D and H change at 20 s),
{len(SEEDS)} seeds.

On-time goodput: answers before the deadline over what was possible, phase by phase the lesser of the callers that came
and capacity x time. False rejections: of the callers that came while the load was below capacity, those turned away.
Laws have their own defaults but for what a row says, and c is known to the first rows only. Scenarios and targets were
fixed before our law was written; what it loses is shown as well. Drains cost Knee goodput where calls take seconds and
few are under way. Without drains F was 0.916 and N 0.890 in the last table of goodput.

{scenarios}
![On-time goodput of each law in each scenario](goodput.svg)

"""
    drawn = "\n![Limits over time](limits.svg)\n\n"
    head, mark, rest = text.partition("\n## Numbers")
    (_DOCS / "laws.md").write_text(intro + head + drawn + mark.lstrip("\n") + rest, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
