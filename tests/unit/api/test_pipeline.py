"""What `frazil.load` returns, without services: errors and texts without secrets, one JVM in a process, the log."""

from __future__ import annotations

import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

import frazil
from frazil.api import pipeline
from frazil.api.redaction import Redaction
from frazil.api.results import RunResult
from frazil.api.run import Stopping
from frazil.errors import UnavailableError
from frazil.ops.reports import Problem
from frazil.plugins import registration
from frazil.plugins.driver import METHODS
from tests.needs import needs

HEAD = 'pipeline: shop\nkafka: {bootstrap.servers: "127.0.0.1:9", sasl.password: "${env:SHOP_PASSWORD}"}\n'
SECRET = "hush/hush+hush"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOP_PASSWORD", SECRET)
    monkeypatch.setattr(pipeline, "SECRETS", Redaction())
    path = tmp_path / "frazil.yaml"
    path.write_text(f"{HEAD}tables: {{shop.orders: {{topic: orders}}}}\n")
    return path


def test_a_file_is_read_from_the_current_directory_unless_it_is_named(file: Path) -> None:
    assert (frazil.load().name, frazil.load(str(file)).file) == ("shop", file)
    assert repr(frazil.load()) == "<frazil.Pipeline 'shop' of frazil.yaml>"


def test_a_wrong_file_raises_what_is_wrong_and_where(file: Path) -> None:
    file.write_text(f"{HEAD}tables: {{shop.orders: {{topik: orders}}}}\n")
    with pytest.raises(frazil.SpecError, match="unknown key `topik`") as raised:
        frazil.load(file)
    assert (raised.value.where, raised.value.remedy) == (f"{file}:3", "did you mean `topic`?")


def test_an_environment_and_values_are_laid_over_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = "environments: {prod: {pipeline: shop-prod}, test: {pipeline: shop-test}}\n"
    file.write_text(file.read_text() + more)
    assert (frazil.load(file).name, frazil.load(file, env="prod").name) == ("shop", "shop-prod")
    assert frazil.load(file, env="prod", values={"pipeline": "other"}).name == "other"
    monkeypatch.setenv("FRAZIL_ENV", "test")
    assert (frazil.load(file).name, frazil.load(file, env="prod").name) == ("shop-test", "shop-prod")
    findings = frazil.load(file, env="prod").check_offline().findings
    assert findings[0].found == f"{file} in the environment prod: pipeline shop-prod"
    assert [one.name for one in findings if one.name.startswith("environment")] == ["environment test"]
    with pytest.raises(frazil.SpecError, match="the file has no environment `stage`, which --env stage chooses"):
        frazil.load(file, env="stage")
    with pytest.raises(frazil.SpecError, match="unknown key `interwal` in `commit`"):
        frazil.load(file, values={"commit.interwal": "5s"})


def test_values_keep_their_types_and_secrets_their_references(file: Path) -> None:
    values = {
        "publish_offsets": False,
        "topics": ["a", "b"],
        "namespace": "n",
        "kafka.sasl.username": "${env:SHOP_PASSWORD}",
    }
    with pytest.raises(frazil.SpecError) as raised:
        frazil.load(file, values={**values, "publish_offsets": "maybe"})
    assert SECRET not in str(raised.value)
    assert frazil.load(file, values=values).name == "shop"


def test_a_method_of_a_package_that_is_not_installed_names_what_to_install(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "_installed", lambda _: ())
    monkeypatch.setattr(METHODS, "_loaded", {})
    with pytest.raises(frazil.SpecError, match="the method `verify` is in the package frazil-verify") as raised:
        frazil.load(file).verify()
    assert raised.value.remedy == "install `frazil[verify]` with pip from where Frazil was installed"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers are waited for for half a second."""
    monkeypatch.setattr("frazil.api.wiring._READ_TIMEOUT_S", 0.5)
    monkeypatch.setattr("frazil.kafka.topics._PROMPT_S", 0.1)


@pytest.mark.usefixtures("impatient")
def test_a_name_that_no_table_has_is_refused_before_a_service_is_asked(file: Path) -> None:
    shop = frazil.load(file)
    with pytest.raises(frazil.SpecError, match=r"the pipeline has no table `shop\.order`") as raised:
        shop.status("shop.order")
    assert raised.value.remedy == "did you mean `shop.orders`?"
    with pytest.raises(frazil.SpecError, match=r"the pipeline has no table `shop\.order`"):
        shop.plan("shop.order")


@pytest.mark.usefixtures("impatient")
def test_a_service_that_does_not_answer_is_a_problem_of_the_status(file: Path) -> None:
    report = frazil.load(file).status()
    assert (report.is_well, [table.name for table in report.tables]) == (False, ["shop.orders"])
    assert [problem.where for problem in report.problems] == ["127.0.0.1:9"]
    assert report.document()["tables"].keys() == {"shop.orders"}


def test_errors_and_results_have_no_secret(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = frazil.load(file)

    def refuse(*_: Any) -> Any:
        try:
            raise ValueError(f"not {SECRET}")
        except ValueError as error:
            raise frazil.UnavailableError(f"refused {SECRET}", remedy=SECRET, where=SECRET) from error

    monkeypatch.setattr("frazil.api.check.plan", refuse)
    with pytest.raises(frazil.UnavailableError) as raised:
        shop.plan()
    error = raised.value
    assert (error.message, error.remedy, error.where, str(error.args)) == (
        "refused ***",
        "***",
        "***",
        "('refused ***',)",
    )
    assert (error.__cause__, error.__context__) == (None, None)
    ended = RunResult((), {"shop.orders": f"stopped: {SECRET}"}, ("shop.orders",))
    monkeypatch.setattr("frazil.api.run.run_pipeline", lambda *_: ended)
    assert shop.run().sentences == {"shop.orders": "stopped: ***"}


def test_an_unexpected_exception_has_no_secret_either(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = frazil.load(file)

    def fail(text: str) -> Any:
        raise ValueError(text)

    monkeypatch.setattr("frazil.api.check.plan", lambda *_: fail(f"jdbc:x?password={SECRET}"))
    with pytest.raises(frazil.InvariantError) as raised:
        shop.plan()
    assert raised.value.message == "ValueError: jdbc:x?password=***"
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    monkeypatch.setattr("frazil.api.check.plan", lambda *_: fail("out of range"))
    with pytest.raises(ValueError, match="out of range"):
        shop.plan()


def test_a_cause_without_a_text_is_cut_off_and_the_error_keeps_its_words() -> None:
    class OfEndedJvm(Exception):
        def __str__(self) -> str:
            raise ConnectionError

    error = UnavailableError("the table cannot be loaded", remedy="mount the warehouse again")
    error.__context__ = OfEndedJvm()
    Redaction().error(error)
    assert error.message == "the table cannot be loaded"
    assert "OfEndedJvm" not in "".join(traceback.format_exception(error))


def test_values_keep_their_types_when_secrets_are_masked() -> None:
    redaction = Redaction()
    problem = Problem("a hush", where="b")
    assert redaction.value(problem) is problem
    redaction.hide(["hush"])
    value = {"p": (problem, [1, None, "hush"]), "f": Path("hush")}
    assert redaction.value(value) == {"p": (Problem("a ***", where="b"), [1, None, "***"]), "f": Path("hush")}


def test_a_time_limit_is_only_for_a_run_that_catches_up(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(frazil.SpecError, match="only for a run until it has caught up"):
        frazil.load(file).run(timeout="5m")
    monkeypatch.setattr("frazil.api.run.run_pipeline", lambda *_: RunResult())
    assert frazil.load(file).run(timeout="5m", until_caught_up=True).is_ok
    with pytest.raises(frazil.SpecError, match="5 parsecs"):
        frazil.load(file).run(until_caught_up=True, timeout="5 parsecs")


@pytest.mark.parametrize("second", ["run", pytest.param("verify", marks=needs("verify"))])
def test_a_second_run_in_a_process_is_refused_while_the_first_has_the_jvm(
    file: Path, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    shop, other = frazil.load(file), frazil.load(file)

    def run(*_: Any) -> RunResult:
        with pytest.raises(frazil.SpecError, match="already has another run or comparison"):
            getattr(other, second)()
        return RunResult()

    monkeypatch.setattr("frazil.api.run.run_pipeline", run)
    assert shop.run().is_ok
    assert shop.run().is_ok, "the first has given the JVM back"


def test_a_run_is_stopped_by_a_call_and_not_by_signals(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop, seen = frazil.load(file), list[bool]()

    def run(_spec: Any, _redaction: Any, stopping: Stopping, *_: Any) -> RunResult:
        stopping.then(lambda: seen.append(True))
        shop.stop()
        return RunResult(is_early=not stopping.is_set)

    monkeypatch.setattr("frazil.api.run.run_pipeline", run)
    assert (shop.run(), seen) == (RunResult(), [True])
    shop.stop()
    assert seen == [True], "nothing runs any more"


_SCRIPT = """
import logging, structlog, sys
if sys.argv[1:] == ["own"]:
    structlog.configure(processors=[structlog.processors.JSONRenderer()])
else:
    logging.basicConfig(format="%(name)s %(levelname)s %(message)s", level="INFO", stream=sys.stdout)
import frazil
frazil.load("frazil.yaml"), frazil.load("frazil.yaml")
structlog.get_logger("frazil").info("table_stopped", table="shop.orders", reason="hush/hush+hush is wrong", rows=3)
try:
    raise ValueError("hush/hush+hush")
except ValueError as error:
    structlog.get_logger("frazil").error("unexpected_error", exc_info=error)
structlog.get_logger("frazil").debug("hidden") if sys.argv[1:] != ["own"] else None
"""


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], 'frazil INFO event=table_stopped table=shop.orders reason="*** is wrong" rows=3\n'),
        (["own"], '{"table": "shop.orders", "reason": "*** is wrong", "rows": 3, "event": "table_stopped"}\n'),
    ],
)
def test_the_log_goes_where_the_program_has_it_without_secrets(file: Path, words: list[str], line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *words], cwd=file.parent, capture_output=True, text=True, check=False
    )
    assert (done.stdout.startswith(line), done.stderr) == (True, "")
    assert "ValueError: ***" in done.stdout
    assert SECRET not in done.stdout
