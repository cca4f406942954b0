"""From a rule to the question that its finding asks, where no time but a result decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Question:
    """What is asked of the user's own dataset and loader where a result is wrong: one counterexample confirms.

    ``refutes``: whether the absence of one shows that there is none; of a race it does not.
    ``two_runs``: what is counted is compared between two runs of the program.
    ``ranks``: what the ranks of a distributed program are given is "compared"; or the first of them answers
    "instead" of a process that has no others, where that one has nothing to say.
    ``device``: it is asked of such a device, and not of the program.
    """

    oracle: str
    refutes: bool = True
    two_runs: bool = False
    ranks: Literal["", "compared", "instead"] = ""
    device: Literal["", "cuda", "mps"] = ""


QUESTIONS: dict[str, Question] = {
    "DLC107": Question("tensors-not-pinned"),
    "DLC109": Question("read-before-arrival", refutes=False, device="cuda"),
    "DLC110": Question("source-reused-too-soon", refutes=False, device="mps"),
    "DLC209": Question("nested-iteration"),
    "DLC213": Question("batch-cannot-be-sent", refutes=False),
    "DLC214": Question("files-stay-behind"),
    "DLC218": Question("stale-in-workers"),
    "DLC219": Question("state-lost"),
    "DLC304": Question("same-with-workers", refutes=False),
    "DLC305": Question("files-stay-open"),
    "DLC314": Question("samples-raise", refutes=False),
    "DLC315": Question("sample-changes"),
    "DLC316": Question("samples-share-memory"),
    "DLC317": Question("samples-are-missing", refutes=False),
    "DLC318": Question("loader-ignores-dataset"),
    "DLC319": Question("parts-share-dataset"),
    "DLC320": Question("epoch-ends-early", refutes=False),
    "DLC401": Question("copies-per-sample"),
    "DLC402": Question("share-of-a-rank", ranks="compared"),
    "DLC403": Question("randomness-repeats"),
    "DLC404": Question("worker-seeds"),
    "DLC405": Question("sample-never-varies"),
    "DLC406": Question("reseeding-repeats"),
    "DLC407": Question("randomness-repeats", refutes=False),
    "DLC408": Question("indices-of-split", two_runs=True),
    "DLC409": Question("workers-fail-to-start", refutes=False),
    "DLC410": Question("order-repeats", ranks="instead"),
    "DLC412": Question("share-of-a-rank", ranks="compared"),
    "DLC413": Question("samples-left-out"),
    "DLC414": Question("draws-beyond-the-end"),
    "DLC415": Question("samples-left-out"),
    "DLC416": Question("samples-drawn-twice", ranks="instead"),
    "DLC417": Question("order-is-fixed"),
    "DLC418": Question("order-changes"),
    "DLC419": Question("last-batch-is-one"),
    "DLC420": Question("batches-differ"),
    "DLC421": Question("second-pass-is-empty"),
    "DLC602": Question("cannot-be-pickled"),
    "DLC603": Question("cannot-be-pickled"),
}
