"""Templates to answers, and the files they refer to.

Every text in a template is escaped, and shows the characters that nobody would see; large pages are compressed.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

import frazil
from frazil.errors import UnavailableError
from frazil.ops import reports
from frazil.printable import plain
from frazil_console import figures
from frazil_http.problems import Problem, Refused
from frazil_http.security import RIGHTS, STATIC

_HERE = Path(__file__).parent
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FILES = {path.name: path.read_bytes() for path in sorted((_HERE / "static").iterdir()) if path.suffix in _TYPES}
_SHORTEST_COMPRESSED = 2_000


def _shown(value: Any) -> Any:
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def breakable(name: str) -> Markup:
    """Returns a name as markup that a browser may break after a dot, a hyphen or an underscore."""
    return Markup("<wbr>").join(map(escape, re.split(r"(?<=[._-])(?=[^._-])", plain(name))))


def _make_environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "size": reports.size,
        "count": reports.count,
        "duration": reports.duration,
        "time": figures.clock_time,
        "moment": figures.moment,
        "url": figures.url_of,
        "rate": figures.rate_text,
        "with_code": figures.with_code,
        "breakable": breakable,
    }
    environment.globals |= {"version": frazil.__version__, "static": STATIC}
    return environment


_ENVIRONMENT = _make_environment()


def page(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """Returns a page. Templates have `may_operate`, and the values."""
    rights = request.scope.get(RIGHTS, frozenset())
    text = _ENVIRONMENT.get_template(template).render(values, may_operate="operate" in rights).encode()
    headers = {"Vary": "Accept-Encoding, Cookie"}
    if len(text) >= _SHORTEST_COMPRESSED and "gzip" in request.headers.get("accept-encoding", ""):
        text, headers["Content-Encoding"] = gzip.compress(text, 5), "gzip"
    return HTMLResponse(text, status, headers=headers)


def problem_page(request: Request, problem: Problem) -> Response:
    """Returns what is wrong as a page."""
    return page(request, "problem.html", problem.status, problem=problem)


def static_file(request: Request) -> Response:
    """Returns a style sheet or a script. Pages name it with the version, so a browser may keep it for good."""
    name = request.path_params["file"]
    if name not in _FILES:
        raise Refused(404, "NotFound", "there is no such file", "see the list of tables")
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(_FILES[name], media_type=_TYPES[Path(name).suffix], headers=headers)


def unavailable(error: UnavailableError) -> dict[str, str]:
    """Returns why a part of a page is missing."""
    return {"message": error.message, "remedy": error.remedy, "where": error.where}
