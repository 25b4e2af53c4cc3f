"""The clock: graph replays over rotating sets, contenders in turn.  benchmarks/bench.cc does the same."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from compare.contenders import Launch, reason_of

GRAPH_MS = 2.0  # long enough to hide the start of a graph
MAX_LAUNCHES = 1024  # per graph


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one launch."""

    median: float
    p10: float
    p90: float


def summarise(samples: list[float]) -> Timing:
    """Of at least one sample."""
    ordered = sorted(samples)
    at = lambda share: ordered[math.floor(share * (len(ordered) - 1) + 0.5)]
    return Timing(at(0.5), at(0.1), at(0.9))


def rounds_for(round_ms: float, sets: int) -> int:
    """How often a graph goes round the sets, one round of which takes `round_ms`."""
    wanted = math.ceil(GRAPH_MS / max(round_ms, 1e-3))
    return min(max(wanted, 1), max(1, MAX_LAUNCHES // sets))


class Clock(Protocol):
    """One contender that is ready to be timed; how: "graph", or "stream" with why_not_graph."""

    how: str
    why_not_graph: str

    def sample(self) -> float:
        """Milliseconds per launch of one replay."""
        ...


def _elapsed_ms(work: Callable[[], None]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


class CudaClock:
    """Launches warmed up and, where it can be, captured in a CUDA graph."""

    def __init__(self, launch: Launch, sets: int):
        self._launch, self._sets = launch, sets
        # What the last launches on each set returned: their memory must not be given to the next.
        self._kept: dict[int, object] = {}
        self.how, self.why_not_graph = "graph", ""
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            self._go_round(1)
            torch.cuda.current_stream().synchronize()
        try:
            replay = self._captured(1)
        except Exception as error:  # some copy to the host or compile on the way
            torch.cuda.synchronize()
            self.how, self.why_not_graph = "stream", reason_of(error)
            replay = self._streamed(1)
        replay()
        self._rounds = rounds_for(_elapsed_ms(replay), sets)
        form = self._captured if self.how == "graph" else self._streamed
        self._replay = form(self._rounds)
        for _ in range(2):
            self._replay()
        torch.cuda.synchronize()

    def sample(self) -> float:
        return _elapsed_ms(self._replay) / (self._rounds * self._sets)

    def _go_round(self, rounds: int) -> None:
        for _ in range(rounds):
            for at in range(self._sets):
                self._kept[at] = self._launch(at)

    def _captured(self, rounds: int) -> Callable[[], None]:
        self._kept.clear()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._go_round(rounds)
        return graph.replay

    def _streamed(self, rounds: int) -> Callable[[], None]:
        return lambda: self._go_round(rounds)


def interleaved(clocks: dict[str, Clock], replays: int) -> tuple[dict[str, Timing], dict[str, str]]:
    """A B C A B C ...: what drifts, drifts for all of them.

    Returns the timings, and why those that failed on the way did.
    """
    samples: dict[str, list[float]] = {name: [] for name in clocks}
    failed: dict[str, str] = {}
    for _ in range(replays):
        for name in (name for name in clocks if name not in failed):
            try:
                samples[name].append(clocks[name].sample())
            except Exception as error:
                failed[name] = reason_of(error)
    return {name: summarise(of) for name, of in samples.items() if name not in failed}, failed


def copy_rate_tb_s(megabytes: int = 2048) -> float:
    """Bytes read plus written per second, in TB/s, of a copy on the device."""
    source = torch.empty(megabytes << 20, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    samples = [_elapsed_ms(lambda: target.copy_(source)) for _ in range(23)][3:]
    return 2 * source.numel() / (summarise(samples).median * 1e9)
