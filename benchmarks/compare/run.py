"""Checks every contender on a row, then times those that are right."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from compare import data as operands
from compare import reference
from compare.contenders import Contender, Launch, NotOffered, Prepared, reason_of
from compare.record import Record, significant
from compare.rows import Row, VerifyRow
from compare.timing import Clock, CudaClock, interleaved

# The first two: ten times what rounding costs with any of the distributions; a wrong kernel is further
# off.  A layer's convolution only moves what is in its states.  Of an element of a convolution: rounding
# to bf16 costs 2^-8 at most.
LARGEST_ERRORS = {
    "error_o": 0.05,
    "error_state": 0.05,
    "error_window": 1e-6,
    "error_element": 1.5 * 2**-8,
}

Entry = dict[str, Any]  # of one contender in the record of a row


def errors_of(prepared: Prepared, expected: tuple[Tensor, ...]) -> dict[str, float]:
    """Relative RMS errors of o and of the final states after one launch on set 0, of a layer also of its
    convolution's; of a convolution also the largest one of an element of either."""
    if prepared.expected is not None:
        expected = prepared.expected()
    o, *states = prepared.result()
    pairs = list(zip((o.reshape(expected[0].shape), *states), expected, strict=True))
    names = ("error_o", "error_state", "error_window")
    errors = {name: reference.relative_rms(*pair) for name, pair in zip(names, pairs)}
    if prepared.state_layout == "columns":
        errors["error_element"] = max(reference.largest_error(*pair) for pair in pairs)
    return errors


def _prepare(contender: Contender, data: Any) -> Prepared:
    if isinstance(data, operands.ConvData):
        return contender.conv(data)
    if isinstance(data, operands.PrefillData):
        return contender.prefill(data)
    return (contender.verify if isinstance(data.row, VerifyRow) else contender.decode)(data)


def checked(contender: Contender, data: Any, expected: tuple) -> tuple[Prepared | None, Entry]:
    """The contender on this row, None unless it is right, and what the record says of that."""
    try:
        prepared = _prepare(contender, data)
        errors = errors_of(prepared, expected)
    except NotOffered as error:
        return None, {"status": "not offered", "reason": str(error)}
    except Exception as error:
        return None, {"status": "failed", "reason": reason_of(error)}
    entry = {"status": "right", "state_layout": prepared.state_layout}
    if prepared.note:
        entry["note"] = prepared.note
    # Text, because JSON has no NaN.
    entry |= {name: significant(x) if x < torch.inf else str(x) for name, x in errors.items()}
    if not all(x < LARGEST_ERRORS[name] for name, x in errors.items()):  # nor is NaN
        return None, entry | {"status": "wrong"}
    return prepared, entry


def run_row(
    row: Row,
    contenders: list[Contender],
    replays: int,
    device: str = "cuda",
    sets: int | None = None,
    clock: Callable[[Launch, int], Clock] = CudaClock,
) -> dict[str, Entry]:
    """An entry for each contender.  What one of them raises is its own entry and no more."""
    data = operands.make(row, device, sets)
    expected = data.expected()
    ready: dict[str, Prepared] = {}
    entries: dict[str, Entry] = {}
    for contender in contenders:
        prepared, entries[contender.name] = checked(contender, data, expected)
        if prepared is not None:
            ready[contender.name] = prepared
    del expected
    clocks: dict[str, Clock] = {}
    for name, prepared in ready.items():
        try:
            clocks[name] = clock(prepared.launch, len(data.sets))
        except Exception as error:
            entries[name] |= {"status": "failed", "reason": reason_of(error)}
    timings, failed = interleaved(clocks, replays)
    for name, reason in failed.items():
        entries[name] |= {"status": "failed", "reason": reason}
    for name, ms in timings.items():
        entries[name] |= {
            "status": "timed",
            "ms": significant(ms.median),
            "ms_p10": significant(ms.p10),
            "ms_p90": significant(ms.p90),
            "how": clocks[name].how,
        }
        if clocks[name].why_not_graph:
            entries[name]["why_not_graph"] = clocks[name].why_not_graph
    return entries


def run_rows(
    rows: list[Row],
    contenders: list[Contender],
    record: Record,
    budget_s: float,
    run_one: Callable[[Row], dict[str, Entry]],
    device_lost: Callable[[], str],
) -> None:
    """Runs rows until they or the budget end, saving the record after each.

    `device_lost`: why nothing can run on the device any more, or "".
    """
    start = time.monotonic()
    for done, row in enumerate(rows):
        if time.monotonic() - start > budget_s:
            record.skip(rows[done:], f"the budget of {budget_s:g} s was spent")
            break
        try:
            entries = run_one(row)
        except Exception as error:  # the data, the reference
            failed = {"status": "failed", "reason": reason_of(error)}
            entries = {contender.name: dict(failed) for contender in contenders}
        record.put(row, entries)
        record.save()
        if lost := device_lost():
            record.skip(rows[done + 1 :], f"the device is lost: {lost}")
            break
    record.save()


def cuda_lost() -> str:
    """An error that stays with the process, or "".  Also returns memory of the row to the device."""
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except Exception as error:
        return reason_of(error)
    return ""
