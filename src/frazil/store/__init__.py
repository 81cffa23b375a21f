"""Access to the object stores and folders of tables from Python, as Iceberg's Java FileIO has it.

It has the same identity, encryption, tags and addresses, by the same properties.
"""
