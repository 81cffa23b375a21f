"""How the pipeline file is written: YAML with its lines, keys declared and read, forms of values, and what is wrong."""
