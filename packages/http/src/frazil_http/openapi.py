"""The OpenAPI document of the API, made from its endpoints."""

from __future__ import annotations

import re
from typing import Any

import frazil
from frazil_http.api import ENDPOINTS, Endpoint
from frazil_http.operations import Operation
from frazil_http.problems import Problem

_PROBLEMS = {
    "400": "A parameter or the request is wrong, or the table refuses the command in its present state.",
    "401": "The token is missing or unknown.",
    "403": "The token may only read, or a page of another site made the request.",
    "404": "There is no such table, operation or path.",
    "409": "Another process works on the table, or none could take over.",
    "421": "The host of the request is not this machine.",
    "500": "The request failed in an unforeseen way.",
    "503": "The pipeline is starting, or a service does not answer.",
}


def openapi_document() -> dict[str, Any]:
    """Returns the document, of OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    models = {kind.__name__: kind.model_json_schema(ref_template=_REFERENCE) for kind in (Problem, Operation)}
    for schema in models.values():
        schema.pop("$defs", None)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Frazil", "version": frazil.__version__, "description": "A running pipeline."},
        "paths": paths,
        "components": {
            "schemas": models,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {
                code: {
                    "description": words,
                    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
                }
                for code, words in _PROBLEMS.items()
            },
        },
        "security": [{"token": []}, {}],
    }


_REFERENCE = "#/components/schemas/{model}"


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    responses: dict[str, Any] = {"200": _json("The answer.", endpoint.answer)}
    if endpoint.is_long:
        responses["202"] = _json(
            "The work continues: request the operation.", {"$ref": "#/components/schemas/Operation"}
        )
    responses |= {code: {"$ref": f"#/components/responses/{code}"} for code in _PROBLEMS}
    variables = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]
    return {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": [*variables, *_parameters(endpoint)],
        "responses": responses,
    }


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    schema = endpoint.parameters.model_json_schema()
    parameters = []
    for name, property_schema in schema.get("properties", {}).items():
        words, default = property_schema.pop("description"), property_schema.pop("default", None)
        kinds = [kind for kind in property_schema.pop("anyOf", [property_schema]) if kind.get("type") != "null"]
        parameter_schema = {key: value for key, value in kinds[0].items() if key != "title"}
        if default is not None:
            parameter_schema["default"] = default
        parameters.append({"name": name, "in": "query", "description": words, "schema": parameter_schema})
    return parameters


def _json(words: str, schema: Any) -> dict[str, Any]:
    return {"description": words, "content": {"application/json": {"schema": schema}}}
