"""Change data capture: records that wrap a change of their source in an envelope are opened to one common form, and
become changes of the table.
"""
