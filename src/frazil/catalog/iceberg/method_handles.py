"""Java functions composed of methods: what Java then calls by itself, thousands of times in one py4j call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any


class MethodHandles:
    """Makes Java's method handles in the JVM behind py4j's `gateway`. Classes are Java's own objects of `class_of`."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._jvm = gateway.jvm

    def class_of(self, name: str) -> Any:
        """Returns the Java class as py4j finds it, also from Spark's class loader."""
        return self._jvm.py4j.reflection.ReflectionUtil.classForName(name)

    def static(self, owner: Any, name: str, answer: Any, *parameters: Any) -> Any:
        """Returns the handle of a public static method."""
        return self._lookup.findStatic(owner, name, self.type_of(answer, *parameters))

    def virtual(self, owner: Any, name: str, answer: Any, *parameters: Any) -> Any:
        """Returns the handle of a public method; its first parameter is the object."""
        return self._lookup.findVirtual(owner, name, self.type_of(answer, *parameters))

    def reordered(self, handle: Any, places: Sequence[int], answer: Any, *parameters: Any) -> Any:
        """Returns a handle with these parameters that passes those at `places` to `handle`, in that order."""
        order = self._gateway.new_array(self._jvm.int, len(places))
        for number, place in enumerate(places):
            order[number] = place
        return self._methods.permuteArguments(handle, self.type_of(answer, *parameters), order)

    def nested(self, outer: Any, place: int, inner: Any) -> Any:
        """Returns `outer` with the result of `inner` as its parameter at `place`, and the parameters of `inner` there."""
        return self._methods.collectArguments(outer, place, inner)

    def type_of(self, answer: Any, *parameters: Any) -> Any:
        """Returns a type of methods; `answer` is the class of what they return."""
        classes = self._jvm.java.util.ArrayList()
        for parameter in parameters:
            classes.add(parameter)
        return self._jvm.java.lang.invoke.MethodType.methodType(answer, classes)

    def instance(self, interface: Any, handle: Any) -> Any:
        """Returns an object of an interface with one method, which calls the handle."""
        return self._proxies.asInterfaceInstance(interface, handle)

    @cached_property
    def consumer(self) -> Any:
        """The interface of functions of one value."""
        return self.class_of("java.util.function.Consumer")

    @cached_property
    def bi_consumer(self) -> Any:
        """The interface of functions of two values, such as a key and a value."""
        return self.class_of("java.util.function.BiConsumer")

    @cached_property
    def _methods(self) -> Any:
        return self._jvm.java.lang.invoke.MethodHandles

    @cached_property
    def _proxies(self) -> Any:
        return self._jvm.java.lang.invoke.MethodHandleProxies

    @cached_property
    def _lookup(self) -> Any:
        return self._methods.publicLookup()
