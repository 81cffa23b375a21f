"""Methods of a DataFrame in Python as queries of SQL: `.select(from_json(col("value"), SCHEMA).alias("r")).select("r.*")`.

Only what has one form in SQL is read: names, casts, aliases, `expr(…)`, and `from_json` with a schema that the file has.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from frazil_migrate.imports.sql import quoted

_SIMPLE = {
    "String": "STRING", "Boolean": "BOOLEAN", "Byte": "TINYINT", "Short": "SMALLINT", "Integer": "INT", "Long": "BIGINT",
    "Float": "FLOAT", "Double": "DOUBLE", "Date": "DATE", "Timestamp": "TIMESTAMP", "TimestampNTZ": "TIMESTAMP_NTZ",
    "Binary": "BINARY",
}  # fmt: skip
Resolve = Callable[[ast.expr], ast.expr]
"""Returns what a name is assigned, or the expression itself."""


def query_of(node: ast.expr, source: str, resolve: Resolve) -> str:
    """Returns the query that a chain of methods stands for. source: what is behind FROM of the innermost one.

    Raises: ValueError where a method or a column has no form in SQL.
    """
    node = resolve(node)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        raise ValueError
    method, below = node.func.attr, node.func.value
    if method in ("load", "table", "read_stream", "read", "readStream"):
        return f"SELECT * FROM STREAM {source}"
    inner = f"FROM ({query_of(below, source, resolve)})"
    if node.keywords:
        raise ValueError
    columns = [_column(argument, resolve) for argument in node.args]
    match method, columns:
        case "select" | "selectExpr", [_, *_]:
            return f"SELECT {', '.join(columns)} {inner}"
        case "where" | "filter", [condition]:
            return f"SELECT * {inner} WHERE {condition}"
    raise ValueError


def _column(node: ast.expr, resolve: Resolve) -> str:
    node = resolve(node)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.Call):
        raise ValueError
    arguments = [resolve(argument) for argument in node.args]
    match _called(node), arguments:
        case "col" | "column" | "expr", [ast.Constant(value=str(text))]:
            return text
        case "cast", [kind] if isinstance(node.func, ast.Attribute):
            return f"CAST({_column(node.func.value, resolve)} AS {_type(kind, resolve)})"
        case "alias", [ast.Constant(value=str(name))] if isinstance(node.func, ast.Attribute):
            return f"{_column(node.func.value, resolve)} AS {quoted(name)}"
        case "from_json", [value, schema]:
            ddl = _type(schema, resolve).replace("'", "''")
            return f"from_json({_column(value, resolve)}, '{ddl}')"
    raise ValueError


def _type(node: ast.expr, resolve: Resolve) -> str:
    """Returns a type of `pyspark.sql.types`, or of text, as DDL."""
    node = resolve(node)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.Call):
        raise ValueError
    name = _called(node)
    if name == "add" and isinstance(node.func, ast.Attribute):
        members = _type(node.func.value, resolve)[len("STRUCT<") : -1]
        return f"STRUCT<{f'{members}, ' if members else ''}{_member(node.args, resolve)}>"
    if name == "StructType":
        fields = resolve(node.args[0]) if node.args else ast.List([])
        if not isinstance(fields, ast.List | ast.Tuple):
            raise ValueError
        calls = [resolve(item) for item in fields.elts]
        members = ", ".join(_member(call.args, resolve) for call in calls if isinstance(call, ast.Call))
        return f"STRUCT<{members}>"
    if name == "DecimalType":
        return f"DECIMAL({', '.join(ast.unparse(argument) for argument in node.args)})" if node.args else "DECIMAL"
    if name in ("ArrayType", "MapType"):
        kinds = [_type(argument, resolve) for argument in node.args[: 1 if name == "ArrayType" else 2]]
        return f"{name.removesuffix('Type').upper()}<{', '.join(kinds)}>"
    if name.removesuffix("Type") not in _SIMPLE:
        raise ValueError
    return _SIMPLE[name.removesuffix("Type")]


def _member(arguments: Sequence[ast.expr], resolve: Resolve) -> str:
    """Returns the member of a struct that the arguments of `StructField` or `add` declare."""
    if len(arguments) < 2:
        raise ValueError
    return f"{quoted(_column(arguments[0], resolve))}: {_type(arguments[1], resolve)}"


def _called(node: ast.Call) -> str:
    """Returns the last name of what is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
