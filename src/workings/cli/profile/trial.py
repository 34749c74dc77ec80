"""Trials of memory in a process of their own, so that one that runs out spoils none of the others.

The process holds the run's model and engine and makes steps of the sizes it is sent. After a trial
that did not fit it is ended and another one started: what an out-of-memory error leaves behind, in
whichever library, is gone with it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from workings.config.dpo import DPOConfig
from workings.config.kinds import SamplingRun, TrainingRun
from workings.errors import TrainingError, WorkingsError, is_out_of_memory

ProfiledRun = TrainingRun | DPOConfig
START_SECONDS = 1800.0
END_SECONDS, DEATH_SECONDS = 5.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What became of steps with `num_rows` rows of `length` tokens in a microbatch.

    Attributes:
        fits: they ended, within the limit.
        peak_bytes: most memory held, of the device; 0 where it is not known.
        step_seconds: of the last step but those before it; 0 where none ended.
    """

    num_rows: int
    length: int
    fits: bool
    peak_bytes: int = 0
    step_seconds: float = 0.0

    @property
    def num_tokens(self) -> int:
        """In one microbatch."""
        return self.num_rows * self.length


class TrialProcess:
    """Trials of one run under a limit in bytes (None: what the device has).

    Used as a context; the process inside is started when it is needed.
    """

    def __init__(self, run: ProfiledRun, *, limit_bytes: int | None, num_steps: int) -> None:
        self._run = run
        self._limit_bytes = limit_bytes
        self._num_steps = num_steps
        self._process: Any = None
        self._pipe: Connection | None = None
        self.report: Mapping[str, Any] = {}

    def __enter__(self) -> TrialProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def start(self) -> bool:
        """False where not even the model with its engine fits."""
        if self._pipe is not None:
            return True
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, self._run, self._limit_bytes), daemon=True
        )
        self._process.start()
        theirs.close()
        self._pipe = ours
        answer = self._answer()
        if answer is None or not answer["fits"]:
            self._end()
            return False
        self.report = answer
        return True

    def trial(self, num_rows: int, length: int) -> Trial:
        """What becomes of steps of this size."""
        missed = Trial(num_rows=num_rows, length=length, fits=False)
        if not self.start():
            return missed
        assert self._pipe is not None
        self._pipe.send((num_rows, length, self._num_steps))
        answer = self._answer()
        if answer is None:
            self._end()
            return missed
        found = Trial(num_rows=num_rows, length=length, **answer)
        if not found.fits:
            self._end()
        return found

    def _answer(self) -> Mapping[str, Any] | None:
        """What the process says; None where it was killed, as it is when memory runs out.

        An error of ours is raised here, and so is the end of a process that nothing killed.
        """
        assert self._pipe is not None
        try:
            if not self._pipe.poll(START_SECONDS):
                return None
            answer = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(DEATH_SECONDS)
            code = self._process.exitcode
            if code is not None and code >= 0:
                self._end()
                raise TrainingError(
                    f"the process that makes the trials ended by itself (exit code {code})",
                    hint="its own error is above",
                ) from None
            return None
        if isinstance(answer, WorkingsError):
            self._end()
            raise answer
        assert isinstance(answer, dict)
        return answer

    def _end(self) -> None:
        if self._pipe is not None:
            with contextlib.suppress(OSError):
                self._pipe.close()
            self._pipe = None
            self._process.join(END_SECONDS)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()


def _serve(pipe: Connection, run: ProfiledRun, limit_bytes: int | None) -> None:
    """The process's side: the model, then one trial after the other, until the pipe closes."""

    def guarded(work: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any] | WorkingsError:
        try:
            found = work()
        except WorkingsError as error:
            if is_out_of_memory(error):
                return {"fits": False}
            return type(error)(error.message, hint=error.hint)
        except Exception as error:
            if is_out_of_memory(error):
                return {"fits": False}
            raise
        return found

    session: _Session | None = None

    def opened() -> Mapping[str, Any]:
        nonlocal session
        session = _Session(run, limit_bytes)
        return session.report

    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        pipe.send(guarded(opened))
        while session is not None:
            pipe.send(guarded(partial(session.trial, *pipe.recv())))


class _Session:
    """The model and the engine of a run, under the limit."""

    def __init__(self, run: ProfiledRun, limit_bytes: int | None) -> None:
        import torch

        from workings.cli.build import build_policy, set_threads
        from workings.cli.engines import build_engine
        from workings.models.placement import choose_device, numbered
        from workings.training.flops import shape_of
        from workings.training.profiling.peak import peak_since_reset, reset_peak

        set_threads(run.num_threads)
        device = numbered(choose_device(run.model.device).device)
        if device.type == "cuda" and limit_bytes is not None:
            total = torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), device)
        reset_peak(device)
        self._run, self._device, self._limit_bytes = run, device, limit_bytes
        self._policy = build_policy(
            run.model, seed=run.seed, masters_elsewhere=run.optimizer.offload
        )
        self._engine = None
        if isinstance(run, SamplingRun):
            self._engine, _ = build_engine(run.engine, self._policy)
            self._sample_a_little()
        if device.type == "cpu" and limit_bytes is not None:
            _limit_address_space(limit_bytes)
        held = peak_since_reset(device)
        shape = shape_of(self._policy.model)
        self.report: Mapping[str, Any] = {
            "fits": self._within(held),
            "held_bytes": held,
            "device": _device_name(device),
            "num_parameters": shape.num_trained + shape.num_frozen,
            "num_trained": shape.num_trained,
        }

    def trial(self, num_rows: int, length: int, num_steps: int) -> Mapping[str, Any]:
        from workings.models.weights import named_full_weights
        from workings.training.profiling.made_up_steps import Sizes, made_up_steps
        from workings.training.profiling.peak import peak_since_reset, reset_peak

        reset_peak(self._device)
        seconds: list[float] = []
        started = time.perf_counter()

        made_up_steps(
            self._run,
            self._policy.model,
            Sizes(
                num_rows=num_rows,
                length=length,
                num_steps=num_steps,
                autocast=self._policy.autocast,
                pad_id=self._policy.pad_id,
                after_step=lambda: seconds.append(time.perf_counter() - started),
            ),
        )
        if self._engine is not None:
            self._engine.load_weights(1, named_full_weights(self._policy.model))
        peak = peak_since_reset(self._device)
        step = (seconds[-1] - seconds[0]) / (len(seconds) - 1) if len(seconds) > 1 else 0.0
        return {"fits": self._within(peak), "peak_bytes": peak, "step_seconds": step}

    def _sample_a_little(self) -> None:
        """What an engine holds besides its cache is there after its first samples."""
        from workings.rollout.engine import Request, SamplingParams

        assert self._engine is not None
        assert isinstance(self._run, SamplingRun)
        request = Request(prompt_ids=(1, 2, 3, 4), num_samples=2)
        self._engine.generate([request], SamplingParams(max_tokens=4))
        if self._run.engine.rests:
            self._engine.sleep()

    def _within(self, num_bytes: int) -> bool:
        return self._limit_bytes is None or num_bytes <= self._limit_bytes


def _device_name(device: Any) -> str:
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _limit_address_space(limit_bytes: int) -> None:
    """Let the process ask for no more than what is left of the limit, so that it fails inside."""
    import psutil

    memory = psutil.Process().memory_info()
    most = memory.vms + max(0, limit_bytes - memory.rss)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
