"""The API of Glue on a bad day: answers that are throttled or late, and runs that do not go as they should.

It stands before the emulator, which judges each request and keeps the list of runs; what state a run is in is said here.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from cli.embedded import aws
from tests.integration.support.servers.gate import Answer, Gate, Request

ACTIVE = ("STARTING", "RUNNING", "STOPPING")
States = tuple[tuple[float, str], ...]
"""A run's states, each with the second from which it holds."""
FAILS: States = ((0, "STARTING"), (3, "RUNNING"), (6, "FAILED"))
LASTS: States = ((0, "STARTING"), (3, "RUNNING"))
HANGS: States = ((0, "STOPPING"),)


@dataclass
class Course:
    """How runs go, and requests with them. throttled: how many of each kind are. late_s: until a start is answered."""

    states: States = LASTS
    stopped: States = HANGS
    error: str = ""
    throttled: int = 0
    late_s: float = 0.0


@dataclass
class _Run:
    states: States
    since: float = field(default_factory=time.monotonic)

    @property
    def state(self) -> str:
        return [state for second, state in self.states if time.monotonic() - self.since >= second][-1]


class HostileApi(Gate):
    """report: bucket and key of what the job says of itself; the emulator says it in its place, and here nobody does."""

    def __init__(self, upstream: str, report: tuple[str, str]) -> None:
        super().__init__(upstream)
        self.course, self.asked = Course(), Counter[str]()
        self._report, self._upstream_url = report, upstream
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()

    def begin(self, course: Course) -> None:
        """From now on; earlier runs are forgotten."""
        self.course, self.asked, self._runs = course, Counter[str](), {}

    @property
    def runs(self) -> dict[str, str]:
        return {id: each.state for id, each in self._runs.items()}

    def answer(self, request: Request) -> Answer | None:
        action = request.headers.get("X-Amz-Target", "").removeprefix("AWSGlue.")
        self.asked[action] += 1
        if self.asked[action] <= self.course.throttled:
            return _refusal("ThrottlingException", "Rate exceeded")
        match action:
            case "StartJobRun":
                with self._lock:
                    answer = self._start(request)
                time.sleep(self.course.late_s)
                return answer
            case "GetJobRuns":
                return self._listed(self.pass_on(request))
            case "BatchStopJobRun":
                for id in json.loads(request.body)["JobRunIds"]:
                    self._runs[id] = _Run(self.course.stopped)
        return self.pass_on(request)

    def _start(self, request: Request) -> Answer:
        if any(state in ACTIVE for state in self.runs.values()):
            return _refusal("ConcurrentRunsExceededException", "Concurrent runs exceeded")
        answer = self.pass_on(request)
        if answer.status == 200:
            aws.client("s3", self._upstream_url).delete_object(Bucket=self._report[0], Key=self._report[1])
            self._runs[json.loads(answer.body)["JobRunId"]] = _Run(self.course.states)
        return answer

    def _listed(self, answer: Answer) -> Answer:
        """Of the emulator's list, the runs that began here."""
        found = json.loads(answer.body)
        if answer.status == 200:
            known = [each for each in found["JobRuns"] if each["Id"] in self._runs]
            found["JobRuns"] = [self._as_it_is(each) for each in known]
        return Answer(answer.status, answer.headers, json.dumps(found).encode())

    def _as_it_is(self, run: Mapping[str, object]) -> dict[str, object]:
        state = self._runs[str(run["Id"])].state
        ended = {} if state in ACTIVE else {"CompletedOn": time.time(), "ErrorMessage": self.course.error}
        kept = {key: each for key, each in run.items() if key not in ("CompletedOn", "ErrorMessage")}
        return {**kept, "JobRunState": state, **ended}


def _refusal(kind: str, message: str) -> Answer:
    body = json.dumps({"__type": kind, "message": message}).encode()
    return Answer(400, {"Content-Type": "application/x-amz-json-1.1", "x-amzn-ErrorType": kind}, body)
