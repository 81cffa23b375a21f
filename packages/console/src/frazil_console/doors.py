"""What the package adds to Frazil, by its entry points."""

from frazil.plugins.pages import PagesKind

CONSOLE = PagesKind("frazil_console.pages:Console")
