"""Evidence -> outcome: which of the nine words describes what happened to one unit, and why.

Pure and total: any ``Evidence`` gets exactly one outcome, whoever asks (the run, the verifier).
The first matching rule of ``RULES`` wins; their order is the policy:

1. What the engine did not do, or cannot tell, is never held against a method: an engine failure
   outranks everything, and without proof of death nothing that was read counts.
2. What *we* stopped is named by why we stopped it (cancelled, deadline, output cap), whatever exit
   code followed: a method that answers TERM with exit 0 still exceeded its deadline. The deadline
   precedes the output cap because the caps are counted once more after death: a unit that was
   stopped by the cap never has ``deadline_exceeded`` set.
3. Memory is judged by the kernel's count of kills, never by an exit code: 137 also comes from
   ``kill -9`` and from ``exit 137``, and the engine's flag can come with exit 0. The flag is only
   asked when the kernel's count could not be read.
4. An out-of-memory kill with exit 0 and every planned row valid is **ok**, with the kill named in
   the reason: the limit held, the method noticed, and the planned result is complete, so calling
   it failed would hide a true score. With rows missing, the kill is why: out_of_memory.
5. The rest is exit code, then rows.
6. An imported file was executed by somebody else: only its rows are judged.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

from runner.model import Evidence, Limits, Outcome, RowsReport
from runner.progress_text import duration_text, printable, row_errors_text, size_text
from runner.rows.faults import MAX_BAD_LINES

MAX_REASON = 500
_HOW_IT_ENDED = {"KILL": "killed after its grace", "TERM": "ended on the stop signal"}
#: Exit codes that shells and init programs give a meaning; a method may use them for its own ends.
_USUAL_MEANING = {
    126: "command cannot be run",
    127: "command not found",
    128 + signal.SIGXFSZ: "as after SIGXFSZ: a file was to grow beyond the limit",
}


def classify(evidence: Evidence, limits: Limits | None = None) -> tuple[Outcome, str]:
    """Return (outcome, reason for people). ``limits`` only lends figures to the reason.

    Never raises; the reason is one printable line, cut at ``MAX_REASON`` characters of text.
    """
    for rule in RULES:
        if rule.applies(evidence):
            return rule.outcome, printable(rule.reason(evidence, limits), MAX_REASON)
    raise AssertionError("the last rule applies to everything")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of the precedence: when it applies, what it decides, how it explains itself."""

    applies: Callable[[Evidence], bool]
    outcome: Outcome
    reason: Callable[[Evidence, Limits | None], str]


def out_of_memory_seen(evidence: Evidence) -> bool:
    """Whether the kernel killed for memory; the engine's flag counts only if the kernel is mute."""
    if evidence.oom_events is None:
        return bool(evidence.engine_oom_flag)
    return evidence.oom_events > 0


def rows_complete(rows: RowsReport | None) -> bool:
    """Every planned row is there and no line is at fault."""
    return rows is not None and rows.fault_count == 0 and _none_missing(rows)


def _none_missing(rows: RowsReport | None) -> bool:
    return rows is not None and rows.missing == 0 and rows.valid >= rows.expected


def _memory_explains(evidence: Evidence) -> bool:
    failed = evidence.exit_code != 0 or not _none_missing(evidence.rows)
    return out_of_memory_seen(evidence) and failed


def _say_engine(evidence: Evidence, _limits: Limits | None) -> str:
    return f"the host failed the unit: {evidence.engine_failure}"


def _say_not_started(evidence: Evidence, _limits: Limits | None) -> str:
    return evidence.not_started_reason or "the run ended before this unit's turn"


def _say_undead(_evidence: Evidence, _limits: Limits | None) -> str:
    return "no proof that the container died, so nothing that it wrote counts"


def _say_no_code(_evidence: Evidence, _limits: Limits | None) -> str:
    return "the container is gone and the engine did not say how it ended"


def _say_imported(evidence: Evidence, _limits: Limits | None) -> str:
    return f"imported, not executed here; {_rows(evidence)}"


def _say_bad_import(evidence: Evidence, _limits: Limits | None) -> str:
    parts = [_rows(evidence), *evidence.harvest_refused]
    faults = evidence.rows.faults[:1] if evidence.rows else ()
    parts += [f"line {fault.line}: {fault.message} [{fault.code}]" for fault in faults]
    return "the imported file does not hold: " + "; ".join(parts)


def _say_cancelled(evidence: Evidence, _limits: Limits | None) -> str:
    return f"the run was cancelled{_after(evidence)}; {_rows(evidence)}"


def _say_timeout(evidence: Evidence, limits: Limits | None) -> str:
    whole = "" if limits is None else f" (whole budget {duration(limits.wall_ms * 1_000_000)})"
    ended = _HOW_IT_ENDED.get(evidence.signal_sent or "", "it ended by itself, but too late")
    hints = [_memory_hint(evidence), _pids_hint(evidence), _output_hint(evidence)]
    told = f"its wall budget ran out{_after(evidence)}{whole}; {ended}; {_rows(evidence)}"
    return "; ".join([told, *filter(None, hints)])


def _say_output(evidence: Evidence, limits: Limits | None) -> str:
    if evidence.output_exceeded == "output_files":
        cap = "" if limits is None else f" of {limits.output_files} entries"
    elif evidence.output_exceeded == "output_bytes":
        cap = "" if limits is None else f" of {size(limits.output_bytes)}"
    else:
        cap = f" ({evidence.output_exceeded})"
    cached = any(warning.startswith("/cache grew") for warning in evidence.warnings)
    place = "/cache" if cached else "/out"
    return f"{place} grew beyond its limit{cap}{_after(evidence)}; {_rows(evidence)}"


def _say_memory(evidence: Evidence, limits: Limits | None) -> str:
    if evidence.oom_events is None:
        return f"out of memory by the engine's account{_peak(evidence, limits)}; {_rest(evidence)}"
    kills = evidence.oom_events
    times = "" if kills == 1 else f", {kills} kills"
    return f"killed by the kernel{_peak(evidence, limits)}{times}; {_rest(evidence)}"


def _say_crashed(evidence: Evidence, _limits: Limits | None) -> str:
    hints = [_pids_hint(evidence), _flag_hint(evidence)]
    return "; ".join([_rest(evidence), *filter(None, hints)])


def _say_invalid(evidence: Evidence, _limits: Limits | None) -> str:
    refused = [
        item for item in evidence.harvest_refused if item.startswith(("rows.jsonl", "run.trec"))
    ]
    if evidence.rows is None:
        found = ", ".join(refused) or "no rows.jsonl"
        return f"exit code 0, but /out holds no readable rows: {found}"
    parts = [_rows(evidence), *refused]
    parts += [
        f"line {fault.line}: {fault.message} [{fault.code}]" for fault in evidence.rows.faults[:1]
    ]
    return "exit code 0, but the rows do not hold: " + "; ".join(parts)


def _say_ok(evidence: Evidence, limits: Limits | None) -> str:
    hint = _memory_hint(evidence)
    if hint:
        hint = f"warning: {hint}{_peak(evidence, limits)}, yet every planned row came"
    return "; ".join(filter(None, [_rows(evidence), hint]))


#: The precedence. See the module's text for why each stands where it does.
RULES: tuple[Rule, ...] = (
    Rule(
        applies=lambda e: e.engine_failure is not None,
        outcome=Outcome.ENGINE_ERROR,
        reason=_say_engine,
    ),
    Rule(
        applies=lambda e: e.imported is not None and rows_complete(e.rows),
        outcome=Outcome.OK,
        reason=_say_imported,
    ),
    Rule(
        applies=lambda e: e.imported is not None,
        outcome=Outcome.INVALID_OUTPUT,
        reason=_say_bad_import,
    ),
    Rule(
        applies=lambda e: not e.started,
        outcome=Outcome.NOT_STARTED,
        reason=_say_not_started,
    ),
    Rule(
        applies=lambda e: not e.death_proven,
        outcome=Outcome.ENGINE_ERROR,
        reason=_say_undead,
    ),
    Rule(applies=lambda e: e.cancelled, outcome=Outcome.CANCELLED, reason=_say_cancelled),
    Rule(applies=lambda e: e.deadline_exceeded, outcome=Outcome.TIMEOUT, reason=_say_timeout),
    Rule(
        applies=lambda e: e.output_exceeded is not None,
        outcome=Outcome.OUTPUT_LIMIT,
        reason=_say_output,
    ),
    Rule(
        applies=lambda e: e.exit_code is None,
        outcome=Outcome.ENGINE_ERROR,
        reason=_say_no_code,
    ),
    Rule(applies=_memory_explains, outcome=Outcome.OUT_OF_MEMORY, reason=_say_memory),
    Rule(applies=lambda e: e.exit_code != 0, outcome=Outcome.CRASHED, reason=_say_crashed),
    Rule(
        applies=lambda e: not rows_complete(e.rows),
        outcome=Outcome.INVALID_OUTPUT,
        reason=_say_invalid,
    ),
    Rule(applies=lambda _e: True, outcome=Outcome.OK, reason=_say_ok),
)


def _rest(evidence: Evidence) -> str:
    return f"{_exit(evidence.exit_code)}{_after(evidence)}; {_rows(evidence)}"


def _exit(code: int | None) -> str:
    if code is None:
        return "exit code unknown"
    meaning = _USUAL_MEANING.get(code)
    if meaning is None and 128 < code < 128 + signal.NSIG:
        try:
            meaning = f"as after {signal.Signals(code - 128).name}, which was not sent by the run"
        except ValueError:
            meaning = None
    return f"exit code {code}" + (f" ({meaning})" if meaning else "")


def _after(evidence: Evidence) -> str:
    return "" if evidence.wall_ns is None else f" after {duration(evidence.wall_ns)}"


def _rows(evidence: Evidence) -> str:
    rows = evidence.rows
    if rows is None:
        return "no rows"
    parts = [f"{rows.valid} of {rows.expected} rows"]
    if rows.fault_count:
        parts.append(_bad_lines(rows))
    if rows.errors:
        parts.append(row_errors_text(evidence))
    return ", ".join(parts)


def _bad_lines(rows: RowsReport) -> str:
    if rows.whole:
        return f"{rows.fault_count:,} bad line{'s' if rows.fault_count != 1 else ''}"
    if rows.fault_count > MAX_BAD_LINES:  # where reading stops: how many there are nobody knows
        return f"more than {MAX_BAD_LINES:,} bad lines"
    return f"at least {rows.fault_count:,} bad lines"


def _peak(evidence: Evidence, limits: Limits | None) -> str:
    at = "" if evidence.peak_memory_bytes is None else f" at {size(evidence.peak_memory_bytes)}"
    return at if limits is None else f"{at} of {size(limits.memory_bytes)}"


def _memory_hint(evidence: Evidence) -> str:
    if not out_of_memory_seen(evidence):
        return ""
    if evidence.oom_events is None:
        return "the engine reported memory running out"
    return f"the kernel killed for memory {evidence.oom_events}x"


def _flag_hint(evidence: Evidence) -> str:
    if evidence.engine_oom_flag and evidence.oom_events == 0:
        return "the engine's out-of-memory flag is set, but the kernel killed nothing for memory"
    return ""


def _pids_hint(evidence: Evidence) -> str:
    if not evidence.pids_events or evidence.pids_events < 0:
        return ""
    return f"its limit on processes was hit {evidence.pids_events}x"


def _output_hint(evidence: Evidence) -> str:
    return "" if evidence.output_exceeded is None else "/out was beyond its limit too"


def size(count: int) -> str:
    """Bytes as people write them: ``1.0 GiB``."""
    return size_text(_bounded(count))


def duration(ns: int) -> str:
    """Nanoseconds as people write them: ``12.3 s``, ``2 min 05 s``."""
    return duration_text(_bounded(ns) / 1e6)


def _bounded(count: int) -> int:
    """Any integer is evidence, but not every integer fits a float."""
    return max(-(1 << 63), min(count, 1 << 63))
