"""Java's names are requested once through py4j; names that may change are requested each time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView

from frazil.runtime.gateway import remember_names


class Answers:
    """A JVM that answers as py4j's protocol has it, and counts the questions."""

    converters = ()
    gateway_property = SimpleNamespace(pool=None)

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.classes = {"org.lake.Table"}

    def send_command(self, command: str) -> str:
        kind, sort, name, *rest = command.split("\n")
        assert kind == "r"
        self.asked.append(f"{name}.{rest[0]}" if sort == "m" else name)
        if sort == "m":  # A member of a class: `size` is a static field, all else a method.
            return "yi7" if rest[0] == "size" else "ym"
        return f"yc{name}" if name in self.classes else "yp"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    for kind in (JVMView, JavaPackage, JavaClass):
        monkeypatch.setattr(kind, "__getattr__", getattr(kind.__getattr__, "asks", kind.__getattr__))
    remember_names()
    remember_names()
    return Answers()


def view(answers: Answers) -> Any:
    return JVMView(answers, "jvm", id="rj")


def test_packages_classes_and_methods_are_asked_for_once(answers: Answers) -> None:
    jvm = view(answers)
    for _ in range(3):
        assert isinstance(jvm.org.lake, JavaPackage)
        assert isinstance(jvm.org.lake.Table, JavaClass)
        assert isinstance(jvm.org.lake.Table.load, JavaMember)
    assert answers.asked == ["org", "org.lake", "org.lake.Table", "org.lake.Table.load"]


def test_static_fields_are_read_each_time(answers: Answers) -> None:
    table = view(answers).org.lake.Table
    assert [table.size, table.size] == [7, 7]
    assert answers.asked.count("org.lake.Table.size") == 2


def test_a_class_that_is_there_only_later_is_found_then(answers: Answers) -> None:
    jvm = view(answers)
    assert isinstance(jvm.org.lake.Scan, JavaPackage), "to py4j all is a package that is no class"
    answers.classes.add("org.lake.Scan")
    assert isinstance(jvm.org.lake.Scan, JavaClass)


def test_another_jvm_is_asked_itself(answers: Answers) -> None:
    other = Answers()
    assert isinstance(view(answers).org.lake.Table, JavaClass)
    other.classes.clear()
    assert isinstance(view(other).org.lake.Table, JavaPackage)
    assert other.asked == answers.asked
