"""AUTO CDC flows in Python as the statements of SQL that declare the same.

The file is parsed and never run. A function that makes a table or a view is followed to its topic; what it does to columns
is Python, and is reported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from frazil.errors import SpecError
from frazil_migrate.imports.auto_cdc_dataframe import query_of

_FLOWS = ("create_auto_cdc_flow", "apply_changes", "create_auto_cdc_flows")
_OF_SNAPSHOTS = ("create_auto_cdc_from_snapshot_flow", "apply_changes_from_snapshot")
_TABLES = ("create_streaming_table", "create_target_table", "create_streaming_live_table")
_EXPECTED = {
    "expect_all": "", "expect_all_or_drop": " ON VIOLATION DROP ROW", "expect_all_or_fail": " ON VIOLATION FAIL UPDATE",
}  # fmt: skip
_ARGUMENTS = ("target", "source", "keys", "sequence_by")
_READERS = ("table", "read_stream", "read", "readStream")
_HARMLESS = ("format", "option", "options", "load", *_READERS)
Loss = tuple[str, str, str]


def statements_of(text: str) -> tuple[str, list[Loss]]:
    """Returns the statements of SQL for a pipeline in Python, and what these cannot contain: what, why, and what to do.

    Raises: SpecError for a text that is not Python.
    """
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        message = "the pipeline is neither SQL with an AUTO CDC flow nor Python"
        raise SpecError(f"{message}: {error}", remedy="correct it, or give the file that has the flow") from None
    reader = _Reader({})
    for node in ast.walk(module):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            reader.constants.setdefault(node.targets[0].id, node.value)
    statements: list[str] = []
    for node in ast.walk(module):
        try:
            statements += reader.statements(node)
        except KeyError as error:
            reason = f"its argument {error} is missing, or is computed by Python"
            reader.losses.append((_name(node), reason, "write the table in the pipeline file"))
    return ";\n".join(statements), reader.losses


class _Reader:
    """Makes statements of calls and functions. constants: what names are assigned."""

    def __init__(self, constants: dict[str, ast.expr]) -> None:
        self.constants = constants
        self.losses: list[Loss] = []

    def statements(self, node: ast.AST) -> Iterator[str]:
        """Yields the statements that a part of the module stands for."""
        if isinstance(node, ast.FunctionDef):
            yield from self._relation(node)
        elif isinstance(node, ast.Call):
            name = _name(node.func)
            if name in _FLOWS:
                yield self._flow(node)
            elif name in _TABLES:
                yield self._table(node)
            elif name in _OF_SNAPSHOTS:
                reason = "snapshots of a source are not changes of it"
                self.losses.append((name, reason, "let a connector such as Debezium write the changes to a topic"))

    # What is declared

    def _flow(self, call: ast.Call) -> str:
        given = {
            **dict(zip(_ARGUMENTS, call.args, strict=False)),
            **{item.arg or "": item.value for item in call.keywords},
        }
        given = {name: value for name, value in given.items() if not _is_constant(value, None, False)}
        words = [f"CREATE FLOW f AS AUTO CDC {'ONCE ' * ('once' in given)}INTO {self._text(given['target'])}"]
        words.append(f"FROM STREAM({self._text(given['source'])})")
        words.append(f"KEYS ({', '.join(self._listed(given['keys']))})")
        for name, clause in (("apply_as_deletes", "DELETE"), ("apply_as_truncates", "TRUNCATE")):
            if name in given:
                words.append(f"APPLY AS {clause} WHEN {self._sql(given[name])}")
        words += ["IGNORE NULL UPDATES"] * any(name.startswith("ignore_null_updates") for name in given)
        words.append(f"SEQUENCE BY {self._sql(given['sequence_by'])}")
        words += self._columns(given, "COLUMNS", "column_list", "except_column_list")
        if "stored_as_scd_type" in given:
            kind = self._text(given["stored_as_scd_type"])
            words.append(f"STORED AS SCD TYPE {kind}" if kind.isdigit() else f"STORED AS {kind}")
        words += self._columns(
            given, "TRACK HISTORY ON", "track_history_column_list", "track_history_except_column_list"
        )
        return " ".join(words)

    def _columns(self, given: dict[str, ast.expr], clause: str, listed: str, left_out: str) -> list[str]:
        if listed in given:
            return [f"{clause} ({', '.join(self._listed(given[listed]))})"]
        return [f"{clause} * EXCEPT ({', '.join(self._listed(given[left_out]))})"] if left_out in given else []

    def _table(self, call: ast.Call) -> str:
        given = {item.arg or "": item.value for item in call.keywords}
        name = self._text(call.args[0] if call.args else given["name"])
        expected = [
            f"CONSTRAINT `{self._text(key)}` EXPECT ({self._text(value)}){ending}"
            for argument, ending in _EXPECTED.items()
            for key, value in _items(self._resolved(given.get(argument)))
        ]
        words = [f"CREATE STREAMING TABLE {name}" + (f" ({', '.join(expected)})" if expected else "")]
        for argument, clause in (("partition_cols", "PARTITIONED BY"), ("cluster_by", "CLUSTER BY")):
            if argument in given:
                words.append(f"{clause} ({', '.join(self._listed(given[argument]))})")
        if "comment" in given:
            words.append(f"COMMENT {_literal(self._text(given['comment']))}")
        properties = [
            f"{_literal(self._text(key))} = {_literal(self._text(value))}"
            for key, value in _items(self._resolved(given.get("table_properties")))
        ]
        return " ".join(words + [f"TBLPROPERTIES ({', '.join(properties)})"] * bool(properties))

    def _relation(self, function: ast.FunctionDef) -> Iterator[str]:
        """Yields the view that a function with one of the pipeline's decorators makes, as far as its source is known."""
        decorators = [item for item in function.decorator_list if _name(item).endswith(("table", "view"))]
        if not decorators:
            return
        named = {item.arg: item.value for item in getattr(decorators[0], "keywords", ())}
        name = self._text(named["name"]) if "name" in named else function.name
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and node not in decorators]
        options = {}
        for call in calls:
            if _name(call.func) == "option" and len(call.args) == 2:
                options[self._text(call.args[0])] = call.args[1]
            elif _name(call.func) == "options":
                options |= {item.arg: item.value for item in call.keywords if item.arg is not None}
                for item in call.keywords:
                    if item.arg is None:
                        options |= {self._text(key): value for key, value in _items(self._resolved(item.value))}
        source = next((self._text(call.args[0]) for call in calls if _name(call.func) in _READERS and call.args), "")
        if {"subscribe", "subscribePattern"} & options.keys():
            shown = ", ".join(f"`{key}` => {self._option(value)}" for key, value in options.items())
            source = f"read_kafka({shown})"
        if not source:
            return
        query = f"SELECT * FROM STREAM {source}"
        if any(isinstance(call.func, ast.Attribute) and call.func.attr not in _HARMLESS for call in calls):
            try:
                query = self._query(function, source)
            except (ValueError, RecursionError):
                reason = "its columns are made by Python, and the records' own fields are taken"
                self.losses.append(
                    (f"def {name}", reason, "write what it does as `select`, where the fields are others")
                )
        yield f"CREATE TEMPORARY VIEW {name} AS {query}"

    def _query(self, function: ast.FunctionDef, source: str) -> str:
        """Returns the query that a function's one result stands for. Raises: ValueError, RecursionError for another one."""
        nodes = list(ast.walk(function))
        [returned] = [node.value for node in nodes if isinstance(node, ast.Return) and node.value]
        named = [node for node in nodes if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)]
        assigned = {node.targets[0].id: node.value for node in named}  # type: ignore[attr-defined]
        if len(assigned) < len(named):
            raise ValueError
        reader = _Reader({**self.constants, **assigned})
        return query_of(returned, source, lambda node: reader._resolved(node) or node)

    # Values

    def _resolved(self, node: ast.expr | None) -> ast.expr | None:
        return self.constants.get(node.id, node) if isinstance(node, ast.Name) else node

    def _text(self, node: ast.expr) -> str:
        """Returns the text of a constant, or of a name that is assigned one."""
        value = self._resolved(node)
        if isinstance(value, ast.Constant):
            return str(value.value)
        if isinstance(value, ast.Call) and value.args:  # Such as `col("id")`.
            return self._text(value.args[0])
        shown = ast.unparse(node)
        self.losses.append((shown, "the value is computed by Python", "write it in the pipeline file"))
        return "unknown"

    def _sql(self, node: ast.expr) -> str:
        """Returns the SQL of a column: a name, `col(…)`, `expr(…)`, or `struct(…)` of these."""
        value = self._resolved(node)
        if isinstance(value, ast.Call) and _name(value.func) == "struct":
            return f"STRUCT({', '.join(self._sql(item) for item in value.args)})"
        return self._text(node)

    def _listed(self, node: ast.expr) -> list[str]:
        value = self._resolved(node)
        return (
            [self._text(item) for item in value.elts] if isinstance(value, ast.List | ast.Tuple) else [self._text(node)]
        )

    def _option(self, node: ast.expr) -> str:
        """Returns an option as SQL has it; a secret as one."""
        value = self._resolved(node)
        is_secret = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and len(value.args) == 2
        if is_secret and value is not None and ast.unparse(value.func).endswith("secrets.get"):  # type: ignore[attr-defined]
            return f"secret({', '.join(_literal(self._text(item)) for item in value.args)})"  # type: ignore[attr-defined]
        return _literal(self._text(node))


def _name(node: ast.AST) -> str:
    """Returns the last name of what is called."""
    if isinstance(node, ast.Call):
        return _name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _items(node: ast.expr | None) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yields the entries of a dictionary that is written out."""
    if isinstance(node, ast.Dict):
        yield from ((key, value) for key, value in zip(node.keys, node.values, strict=True) if key is not None)


def _is_constant(node: ast.expr, *values: object) -> bool:
    return isinstance(node, ast.Constant) and any(node.value is value for value in values)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
