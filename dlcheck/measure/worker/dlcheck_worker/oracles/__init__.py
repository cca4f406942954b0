"""What is counted where a result is wrong rather than slow: one counterexample confirms.

Each oracle asks one question of the user's own dataset and loader, on a few samples, and answers with
``violated``, what it counted, and a sentence.  An exception of the user's code in the place that the
rule speaks of is an answer as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import chance, copying, orders, ranks, samples, states, workers
from .asking import Inapplicable

Oracle = Callable[[Any, dict[str, Any]], dict[str, Any]]

ORACLES: dict[str, Oracle] = {
    "copies-per-sample": workers.copies_per_sample,
    "same-with-workers": workers.same_with_workers,
    "randomness-repeats": chance.randomness_repeats,
    "sample-never-varies": chance.sample_never_varies,
    "worker-seeds": chance.worker_seeds,
    "workers-fail-to-start": chance.workers_fail_to_start,
    "reseeding-repeats": chance.reseeding_repeats,
    "order-repeats": orders.order_repeats,
    "samples-left-out": orders.samples_left_out,
    "samples-drawn-twice": orders.samples_drawn_twice,
    "order-is-fixed": orders.order_is_fixed,
    "order-changes": orders.order_changes,
    "nested-iteration": orders.nested_iteration,
    "indices-of-split": orders.indices_of_split,
    "last-batch-is-one": orders.last_batch_is_one,
    "batches-differ": orders.batches_differ,
    "epoch-ends-early": orders.epoch_ends_early,
    "second-pass-is-empty": orders.second_pass_is_empty,
    "draws-beyond-the-end": orders.draws_beyond_the_end,
    "sample-changes": samples.sample_changes,
    "samples-share-memory": samples.samples_share_memory,
    "samples-are-missing": samples.samples_are_missing,
    "samples-raise": samples.samples_raise,
    "loader-ignores-dataset": samples.loader_ignores_dataset,
    "files-stay-open": samples.files_stay_open,
    "parts-share-dataset": samples.parts_share_dataset,
    "stale-in-workers": states.stale_in_workers,
    "state-lost": states.state_lost,
    "tensors-not-pinned": copying.tensors_not_pinned,
    "read-before-arrival": copying.read_before_arrival,
    "source-reused-too-soon": copying.source_reused_too_soon,
    "share-of-a-rank": ranks.share_of_a_rank,
    "files-stay-behind": workers.files_stay_behind,
    "cannot-be-pickled": workers.cannot_be_pickled,
    "batch-cannot-be-sent": workers.batch_cannot_be_sent,
}


def ask(name: str, source: Any, config: dict[str, Any]) -> dict[str, Any]:
    """The answer of an oracle: ``{"violated": bool, "counts": {...}, "said": sentence}``.

    ``config`` is what the finding knows of its fault: the attribute that goes stale, say.
    """
    try:
        return ORACLES[name](source, config)
    except Inapplicable as error:
        return {"inapplicable": str(error)}
