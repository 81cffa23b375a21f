"""What the package adds to Frazil, by its entry points."""

from frazil_http.page_kinds import PagesKind

CONSOLE = PagesKind("frazil_console.pages:Console")
