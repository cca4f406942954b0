"""From what was measured to a record."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from statistics import median
from typing import Any, Literal

from dlcheck.findings import Finding
from dlcheck.measure import stepmodel, store, verdict
from dlcheck.measure.children import Failed
from dlcheck.measure.plan import Plan
from dlcheck.measure.record import Arm, Effect, Evidence, Experiment, Fact, Guard, Location, Noise, Record, Verdict
from dlcheck.measure.runner import AGAIN, REPLAY, Comparison, Group, Outcome, guards
from dlcheck.measure.statistics import LOOKS
from dlcheck.measure.template import AT_MOST

Audit = Literal["log", "keep", "deny"]

USED_UP = "the time for all findings (--total) was used up"
_WORTH = 0.5  # a control that reaches more than this share of an effect is the better advice


@dataclass(frozen=True)
class Settings:
    """What the command line asks for; seconds.  ``root`` is the project's top."""

    root: str
    python: str | None = None
    run: str | None = None
    extract: bool = False
    factory: str | None = None
    budget_s: float = 60.0
    total_s: float = 600.0
    quick: bool = False
    audit: Audit = "log"
    seed: int = 0

    @property
    def looks(self) -> tuple[int, ...]:
        return LOOKS[:1] if self.quick else LOOKS


@dataclass(frozen=True)
class Context:
    """What all records of a run share."""

    settings: Settings
    machine: Mapping[str, Any]
    ready: Mapping[str, Any]  # what the interpreter said of itself

    def plain(
        self, finding: Finding, judged: Verdict, reason: str, evidence: Evidence, experiment: Experiment
    ) -> Record:
        """A record without figures."""
        at = finding.place
        path = store.path_below(at.path, self.settings.root)
        key = store.key(finding, self.settings.root)
        date = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        return Record(
            id=hashlib.sha256(json.dumps([key, date, self.settings.seed]).encode()).hexdigest()[:16],
            code=finding.code,
            rule=finding.rule,
            fingerprint=key,
            location=Location(path, at.line, at.column, at.cell, store.statement_hash(finding)),
            verdict=judged,
            reason=reason,
            evidence=evidence,
            experiment=experiment,
            date=date,
            machine=self.machine,
            software=software(self.ready),
            rerun=self._rerun(finding, path),
        )

    def _rerun(self, finding: Finding, path: str) -> str:
        settings = self.settings
        several = finding.measure.get("together", ())
        paths = list(dict.fromkeys(store.path_below(one, settings.root) for one, _ in several)) or [path]
        codes = sorted({code for _, code in several}) or [finding.code]
        words = ["dlcheck", "measure", *paths, "--select", ",".join(codes)]
        words += ["--run", settings.run] if settings.run else []
        words += ["--extract"] if settings.extract else []
        words += ["--factory", settings.factory] if settings.factory else []
        words += ["--quick"] if settings.quick else []
        return shlex.join(words)


def software(ready: Mapping[str, Any]) -> dict[str, Any]:
    return {name: ready.get(name) for name in ("python", "torch", "threads", "start_method", "cuda")}


@dataclass(frozen=True)
class Measured:
    """A group that has been run."""

    group: Group
    outcome: Outcome
    around: Sequence[Guard]  # what was checked before, after and meanwhile
    noise: Noise | None
    evidence: Evidence
    budget_s: float

    def record(self, one: Plan, context: Context) -> Record:
        """What it says of one of its findings."""
        pair = self.group.comparisons[one.finding.fingerprint]
        found = self.outcome.effect_of(pair)
        controls = {name: self.outcome.effect_of(Comparison("A", name, "ratio")) for name in one.template.controls}
        known = {name: effect for name, effect in controls.items() if effect is not None}
        ceiling = self.outcome.effect_of(Comparison("A", REPLAY, "ratio"))
        checks = [*self.around, *guards(self.group, self.outcome, pair, self.noise), *_limit(found, ceiling)]
        checks += _lacking(self.outcome)
        if not one.template.same_batches:
            checks = [guard for guard in checks if guard.name != "same-batches"]
        judged, reason = self._judged(one, pair, found, checks, known, self._stopped(context.settings))
        plain = context.plain(one.finding, judged, reason, self.evidence, one.template.experiment)
        details = self._details(one, pair, found)
        return replace(
            plain, effect=found, controls=known, guards=checks, ceiling=_described(found, ceiling, one), **details
        )

    def _details(self, one: Plan, pair: Comparison, found: Effect | None) -> dict[str, Any]:
        outcome, metric = self.outcome, one.template.metric
        arms = {"A": ("as written", pair.a), "B": ("as suggested", pair.b)}
        arms.update({name: (name, name) for name in (*one.template.controls, AGAIN) if name in self.group.arms})
        renamed = {arm: name for name, (_, arm) in arms.items()}
        return {
            "metric": metric,
            "arms": {name: Arm(label, outcome.configs[arm]) for name, (label, arm) in arms.items()},
            "workload": _shown(one.workload, self.evidence),
            "noise": self.noise,
            "model": _promised(one, [outcome.configs[pair.a], outcome.configs[pair.b]], outcome, found),
            "saves": _saves(one, found) if found else {},
            "blocks": [replace(each, arm=renamed[each.arm]) for each in outcome.blocks if each.arm in renamed],
            "memory": [replace(each, arm=renamed[each.arm]) for each in outcome.memory if each.arm in renamed],
            "software": software(outcome.ready),
            "side_effects": outcome.side_effects,
            "cost": {"wall_s": outcome.wall_s, "setup_s": outcome.setup_s, "budget_s": self.budget_s},
        }

    def _stopped(self, settings: Settings) -> str:
        """Why there are no more rounds."""
        if self.outcome.stopped != "budget":
            return self.outcome.stopped or "stopped"
        return USED_UP if self.budget_s < settings.budget_s else "the time for it (--budget) was used up"

    def _judged(
        self,
        one: Plan,
        pair: Comparison,
        found: Effect | None,
        checks: Sequence[Guard],
        controls: Mapping[str, Effect],
        stopped: str,
    ) -> tuple[Verdict, str]:
        outcome = self.outcome
        if lacking := _package(outcome.failures.get(pair.a), self.evidence):
            return "not-measurable-here", lacking
        if pair.a in outcome.failures:
            failure = outcome.failures[pair.a]
            # How a program ended is a sentence by itself: it may have run well, and been too short.
            said = "" if failure.stage == "program" else "what is written could not be run: "
            return "error", f"{said}{failure}"
        if pair.b in outcome.failures:
            return "suggestion-breaks", f"what is suggested could not be run: {outcome.failures[pair.b]}"
        if found is None:
            return "inconclusive", f"{stopped} before two rounds were done"
        plain = verdict.judge(found, pair.kind, self.noise)
        reason = verdict.reason(plain, found, pair.kind, self.noise, one.template.metric.name)
        if found.n_units < LOOKS[0]:
            return "inconclusive", f"{stopped} after {found.n_units} {found.units}; {reason.rpartition('; ')[2]}"
        failed = next((guard for guard in checks if guard.status == "fail"), None)
        if failed is not None:
            return verdict.capped(plain, checks), f"{failed.detail}; {reason.rpartition('; ')[2]}"
        if AT_MOST in controls:
            return _between(plain, reason, found, controls[AT_MOST], self.noise)
        return _less_the_controls(plain, reason, found, controls)


def _saves(one: Plan, found: Effect) -> dict[str, float]:
    """What the effect comes to: between the epochs of a run there is one less than these."""
    if one.template.metric.unit != "s/epoch":
        return {}
    epochs = one.workload.get("epochs")
    if epochs is None or one.template.metric.kind != "additive":
        return {"per_epoch_s": found.diff}
    return {"per_epoch_s": found.diff, "per_run_s": found.diff * (epochs.value - 1)}


def _shown(workload: Mapping[str, Fact], evidence: Evidence) -> dict[str, Fact]:
    """What shaped it: in the program itself the data are the program's, whatever a stand-in would have had."""
    return {name: fact for name, fact in workload.items() if evidence != "in-vivo" or name != "dataset"}


def _package(failure: Failed | None, evidence: Evidence) -> str:
    """What a stand-in needs that the interpreter does not have; empty where it failed for another reason, or not."""
    if failure is None or failure.kind != "ModuleNotFoundError" or evidence != "synthetic":
        return ""
    return f"its stand-in needs a package that the interpreter does not have: {failure.message}"


def _lacking(outcome: Outcome) -> list[Guard]:
    """What a device has not that its experiment needs: with anything of it missing, times decide nothing."""
    lacking = sorted({name for facts in outcome.facts for name in facts.get("missing", ())})
    return [Guard("device", "fail", f"it lacks {' and '.join(lacking)}")] if lacking else []


def _promised(
    one: Plan, configs: Sequence[Mapping[str, Any]], outcome: Outcome, found: Effect | None
) -> dict[str, Any] | None:
    """What the step model says of both arms from what their parts take, and by what share of the measured it is off."""
    terms = [facts["terms"] for facts in outcome.facts if "terms" in facts]
    if not terms or found is None:
        return None
    middle = {name: median(each[name] for each in terms) for name in terms[0]}
    a, b = (stepmodel.of_arm(one.template.device, middle, config) for config in configs)
    if a is None or b is None:
        return None
    error = {"A": stepmodel.error(found.a, a), "B": stepmodel.error(found.b, b)}
    return {"predicted": {"A": a, "B": b}, "terms": middle, "error": error}


def _limit(found: Effect | None, ceiling: Effect | None) -> list[Guard]:
    """No loader is faster than none at all: what is has left something out."""
    if found is None or ceiling is None:
        return []
    beaten = found.ci[1] < ceiling.ci[0] / (1 + verdict.EQUIVALENCE)
    detail = f"an ideal loader: B/A {ceiling.ratio:.3f} [{ceiling.ci[0]:.3f}, {ceiling.ci[1]:.3f}]"
    return [Guard("physical-limit", "fail" if beaten else "pass", detail)]


def _described(found: Effect | None, ceiling: Effect | None, one: Plan) -> dict[str, Any] | None:
    """What an ideal loader would make of it, and how much of that the suggestion reaches."""
    if ceiling is None:
        return None
    known = {"kind": "replay", "value": ceiling.b, "unit": one.template.metric.unit}
    if found is None or ceiling.diff <= 0:
        return known
    return {**known, "fraction_reached": found.diff / ceiling.diff}


def _between(plain: Verdict, reason: str, found: Effect, most: Effect, noise: Noise | None) -> tuple[Verdict, str]:
    """Of a statement's share of a step what is left when watching it is paid confirms, and only all of it refutes."""
    if plain == "confirmed":
        return plain, reason
    if verdict.judge(most, "ratio", noise) == "refuted-no-effect":
        return "refuted-no-effect", verdict.reason(
            "refuted-no-effect", most, "ratio", noise, "step without the statement"
        )
    least, largest = sorted(max(0.0, 1 - one.ratio) for one in (found, most))
    told = f"the statement takes {least:.0%} to {largest:.0%} of a step, of which watching it is the difference"
    return "inconclusive", f"{told}; {reason.rpartition('; ')[2]}"


def _less_the_controls(
    plain: Verdict, reason: str, found: Effect, controls: Mapping[str, Effect]
) -> tuple[Verdict, str]:
    """A gain that a control reaches as well is not the suggestion's."""
    for name, effect in controls.items():
        share = verdict.explained_by(effect, found)
        if plain == "confirmed" and share > _WORTH:
            told = f"{name} alone gives {share:.0%} of it (B/A {effect.ratio:.2f})"
            return "inconclusive", f"{told}: it is the program's threads, not its loader; {reason}"
    return plain, reason
