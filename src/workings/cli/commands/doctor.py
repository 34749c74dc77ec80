"""`workings doctor`: what works on this machine, and whether a run will."""

from __future__ import annotations

from workings.cli.colour import paint
from workings.cli.console import write_data
from workings.cli.doctor.findings import Finding, format_finding, summary
from workings.cli.doctor.machine import machine_findings
from workings.cli.doctor.run import phases_of, run_findings
from workings.config.kinds import AnyRun


def run(config: AnyRun | None) -> int:
    """Print one line per thing looked at; 1 where something fails, else 0."""
    findings: list[Finding] = []

    def show(finding: Finding) -> None:
        findings.append(finding)
        write_data(format_finding(finding))

    for finding in machine_findings():
        show(finding)
    for name, phase in phases_of(config).items():
        write_data("\n" + paint(name, "bold"))
        for finding in run_findings(phase):
            show(finding)
    write_data("\n" + summary(findings))
    return 1 if any(finding.status == "FAIL" for finding in findings) else 0
