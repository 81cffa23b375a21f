"""Tables judged by the reference libraries of formats and by plain Python rules: nothing here decodes as Frazil does."""
