"""Change data capture: records that wrap a change of their source are opened to one common form.

They become changes of the table from there, whatever their envelope and format.
"""
